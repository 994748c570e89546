package cell

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/hashicorp/raft"
)

// The cell replaces a master whose process has died at once, before the election timeout. The kernel of a dead
// process closes its connections and refuses new ones; so does a failed replica that ends (Replica.fail), but
// no failed network, hung process or machine without power. So a replica that loses a stream of the master, and
// is refused when it reconnects, asks the replica with the longest log to stand for election, like a hand-over
// (adr 21).
//
// Safety does not depend on it: the election is an ordinary one. A wrong refusal, for instance a firewall's,
// costs one change of the master.

// Replicas that find the master dead ask in turn: two candidates at once would split the votes.
const (
	standTurn    = 50 * time.Millisecond // enough for an election on a machine that is not overloaded
	surveyLimit  = 25 * time.Millisecond // for the answers of the others
	refusalTries = 3                     // the kernel closes connections and listeners in any order
	refusalPause = 5 * time.Millisecond
)

// noteLost runs when a replica has closed a stream of its Raft messages. It does not wait: if another is
// pending, the election timeout handles this one.
func (h *handOvers) noteLost(id string) {
	select {
	case h.lost <- id:
	default:
	}
}

// replaceDead handles lost streams until ctx ends. A master has several, and is replaced once in its term.
func (h *handOvers) replaceDead(ctx context.Context) {
	replaced := uint64(0) // the latest term in which this replica asked a successor
	for {
		select {
		case id := <-h.lost:
			if term := h.raft.CurrentTerm(); term > replaced && h.replaceIfDead(ctx, term, id) {
				replaced = term
			}
		case <-ctx.Done():
			return
		}
	}
}

// replaceIfDead asks a successor to stand for election if the replica is the term's master, as far as known
// here, and its process has died. It reports whether it asked one. If it reached nobody, it may itself have
// been cut off.
func (h *handOvers) replaceIfDead(ctx context.Context, term uint64, id string) (asked bool) {
	unreplaced := func() bool { // no other replica leads or stands for election
		_, leader := h.raft.LeaderWithID()
		return string(leader) == id && h.raft.CurrentTerm() == term && ctx.Err() == nil
	}
	if !unreplaced() {
		return false
	}
	master, others, turn := h.survivors(id)
	if len(others) == 0 || !h.isDead(ctx, master) {
		return false
	}
	pause(ctx, time.Duration(turn)*standTurn)
	if !unreplaced() {
		return false
	}
	successor, ok := longest(h.raft.LastIndex(), term, others, h.ask(ctx, others, surveyLimit))
	if !ok || ctx.Err() != nil || !unreplaced() { // if this log is the longest, another replica asks this one in its turn
		return false
	}
	h.log.Info("the master's process has died: another replica is asked to stand for election", "event", "master_died", "peer", id, "term", term, "successor", successor.ID)
	if err := h.askToStand(successor); err != nil {
		h.log.Debug("it did not hear of that; there is an election after the election timeout", "successor", successor.ID, "error", err)
	}
	return true
}

// survivors returns the voter with that id, the other voters, and this replica's turn. They are empty if this
// replica has no vote.
func (h *handOvers) survivors(id string) (dead raft.Server, others []raft.Server, turn int) {
	voters := slices.DeleteFunc(slices.Clone(h.servers()), func(s raft.Server) bool { return s.Suffrage != raft.Voter })
	slices.SortFunc(voters, func(a, b raft.Server) int { return strings.Compare(string(a.ID), string(b.ID)) })
	member := false
	for _, s := range voters {
		switch {
		case string(s.ID) == id:
			dead = s
		case string(s.ID) == h.cfg.ID:
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

func (h *handOvers) isDead(ctx context.Context, s raft.Server) bool {
	for range refusalTries {
		if h.port.Refused(string(s.ID), string(s.Address)) {
			return true
		}
		pause(ctx, refusalPause)
	}
	return false
}

// longest returns the replica with the longest log of those that have answered in that term. After answers from
// enough replicas for an election it has, as a rule, every committed entry. If an earlier master's uncommitted
// entries make it longest, it loses, and the election timeout decides. ok is false if the own log is longer: the
// successor would lack that vote.
func longest(own, term uint64, replicas []raft.Server, reports map[string]peer.Report) (successor raft.Server, ok bool) {
	for _, s := range replicas {
		if is, answered := reports[string(s.ID)]; answered && is.Term == term && is.Last >= own {
			successor, own, ok = s, is.Last, true
		}
	}
	return successor, ok
}
