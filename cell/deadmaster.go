package cell

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/hashicorp/raft"
)

// A master whose process has died is replaced at once, and not after the election timeout.
// The kernel of such a process closes its connections and refuses new ones, as it does for
// one that has failed and ends (Replica.fail), and which no failed network, hung process or
// machine without power does. So a replica that loses a stream of the master's, and is refused
// when it connects anew, asks the replica with the longest log to stand for election, as a
// hand-over does (adr 21).
//
// Nothing of safety rests on it: the election is one like any other. If the refusal was
// wrong, of a firewall for instance, the cell has changed its master for nothing, once.

// Of the replicas that find the master dead, one asks at a time, each in its turn: two
// that stand at once would take votes from each other.
const (
	standTurn    = 50 * time.Millisecond // time enough for an election on a machine that is not overloaded
	surveyLimit  = 25 * time.Millisecond // for the answers of the others
	refusalTries = 3                     // the kernel closes connections and listeners in any order
	refusalPause = 5 * time.Millisecond
)

// noteLost is called when a replica has closed a stream of its Raft messages. It does not
// wait: if another is looked after, Raft's election timeout does for this one.
func (r *Replica) noteLost(id string) {
	select {
	case r.lost <- id:
	default:
	}
}

// replaceDead looks after lost streams until ctx ends. A master has several, and is replaced
// once in its term.
func (r *Replica) replaceDead(ctx context.Context) {
	replaced := uint64(0) // the latest term for whose master a successor was asked
	for {
		select {
		case id := <-r.lost:
			if term := r.raft.CurrentTerm(); term > replaced && r.replaceIfDead(ctx, term, id) {
				replaced = term
			}
		case <-ctx.Done():
			return
		}
	}
}

// replaceIfDead has a successor stand for election if that replica is the master of the
// term, as far as is known here, and its process has died. It reports whether it asked one:
// a replica that was cut off itself, and so reached nobody, may have been mistaken.
func (r *Replica) replaceIfDead(ctx context.Context, term uint64, id string) (asked bool) {
	unreplaced := func() bool { // no other replica leads, or stands for election
		_, leader := r.raft.LeaderWithID()
		return string(leader) == id && r.raft.CurrentTerm() == term && ctx.Err() == nil
	}
	if !unreplaced() {
		return false
	}
	master, others, turn := r.survivors(id)
	if len(others) == 0 || !r.isDead(ctx, master) {
		return false
	}
	pause(ctx, time.Duration(turn)*standTurn)
	if !unreplaced() {
		return false
	}
	successor, ok := longest(r.raft.LastIndex(), r.survey(ctx, term, others))
	if !ok || !unreplaced() { // if this log is the longest, another asks this replica, in its turn
		return false
	}
	r.log.Info("the master's process has died: another replica is asked to stand for election", "event", "master_died", "peer", id, "term", term, "successor", successor.ID)
	if err := r.askToStand(successor); err != nil {
		r.log.Debug("it did not hear of that; there is an election after the election timeout", "successor", successor.ID, "error", err)
	}
	return true
}

// survivors returns the voter of that id, the others but this one, and this one's turn to
// ask. There are none if this replica is no voter.
func (r *Replica) survivors(id string) (dead raft.Server, others []raft.Server, turn int) {
	configuration := r.raft.GetConfiguration()
	if configuration.Error() != nil {
		return dead, nil, 0
	}
	voters := slices.DeleteFunc(slices.Clone(configuration.Configuration().Servers), func(s raft.Server) bool { return s.Suffrage != raft.Voter })
	slices.SortFunc(voters, func(a, b raft.Server) int { return strings.Compare(string(a.ID), string(b.ID)) })
	member := false
	for _, s := range voters {
		switch {
		case string(s.ID) == id:
			dead = s
		case string(s.ID) == r.cfg.ID:
			turn, member = len(others), true
		default:
			others = append(others, s)
		}
	}
	if !member || dead.ID == "" {
		return dead, nil, 0
	}
	return dead, others, turn
}

// isDead reports whether nobody listens where a replica should.
func (r *Replica) isDead(ctx context.Context, s raft.Server) bool {
	for range refusalTries {
		if r.port.Refused(string(s.ID), string(s.Address)) {
			return true
		}
		pause(ctx, refusalPause)
	}
	return false
}

// logEnd is how far a replica's log goes.
type logEnd struct {
	of   raft.Server
	last uint64
}

// survey asks replicas how far their logs go, and returns the answers of those that are
// in that term and answer soon.
func (r *Replica) survey(ctx context.Context, term uint64, replicas []raft.Server) (ends []logEnd) {
	answers := make(chan logEnd, len(replicas))
	for _, s := range replicas {
		r.prober.Ask(string(s.ID), string(s.Address), func(report peer.Report) {
			if report.Term == term {
				answers <- logEnd{of: s, last: report.Last} // there is room: each is asked once
			}
		})
	}
	late := time.NewTimer(surveyLimit)
	defer late.Stop()
	for range replicas {
		select {
		case a := <-answers:
			ends = append(ends, a)
		case <-late.C:
			return ends
		case <-ctx.Done():
			return nil
		}
	}
	return ends
}

// longest returns the replica whose log is the longest: if enough have answered for an
// election, every entry that has committed is in it, as a rule. (A log may be long with what
// an earlier master alone has had in it. Then the successor is not elected, and the election
// timeout decides.) ok is false if the log that goes to own is longer, so that the successor
// would lack that vote.
func longest(own uint64, ends []logEnd) (successor raft.Server, ok bool) {
	for _, e := range ends {
		if e.last >= own {
			successor, own, ok = e.of, e.last, true
		}
	}
	return successor, ok
}
