package cell

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/hashicorp/raft"
)

// watchContradictions stops this replica when a majority contradicts it, until ctx ends
// (docs/adr/0035-who-is-contradicted-stops.md).
func (r *Replica) watchContradictions(ctx context.Context) {
	tick := time.NewTicker(compareEvery)
	defer tick.Stop()
	for looks := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		own, others := r.comparison.Checks()
		if by, _ := peer.Contradicted(own, others, r.voters()); by == nil {
			continue // the count goes on while this replica has reached a check point and the others have not reported theirs
		}
		//mutant: if looks++; looks > looksBefore && false && r.stopIfContradicted(ctx, own) { //by TestContradictedReplicaStops of ./cell
		if looks++; looks > looksBefore && r.stopIfContradicted(ctx, own) {
			return
		}
	}
}

// looksBefore is how many looks a contradicted replica waits before it stops, since one that may be leaving
// reports no check. Meanwhile all others, which ask every compareEvery, have to learn from it that it differs,
// and to report that. Two, because a question and a look may coincide.
const looksBefore = 2

// stopIfContradicted asks the others again. It stops this replica, and returns true, if a majority of the
// voters contradicts it now.
//
// Claim: a majority runs on, however many replicas stop in this way. A replica announces that it may be leaving
// before it asks, and then contradicts nobody. Take the stopping replica that announced it last: all others
// that stop did so before this one asked. So the majority that contradicted it goes on.
func (r *Replica) stopIfContradicted(ctx context.Context, own peer.Check) bool {
	r.leaving.Store(true)
	voters := r.voters()
	//mutant: by, theirs := peer.Contradicted(own, func() map[string]peer.Check { _, heard := r.comparison.Checks(); return heard }(), voters) //by TestWhoMayLeaveContradictsNobody of ./cell
	by, theirs := peer.Contradicted(own, r.askForChecks(ctx), voters)
	if by == nil {
		r.leaving.Store(false)
		return false
	}
	r.silence()
	why := fmt.Sprintf("replica %s stops, because most of its cell contradicts it: after entry %d of the log the state here has the hash %012x, and at %s, %d of the %d voting replicas, "+
		"it is %012x. Memory, disk or software of this replica is faulty, and what it says cannot be relied on. Its data is kept as it is, in %s, and no replica starts with it again (%s there). "+
		"Put a new replica in its place, best on another machine: start chubbyd serve --join there, under an id that was never used, and run chubbyctl cell replace %s NEW ADDRESS. "+
		"To look at what is in the directory: chubbyctl cell recover %s --to FILE, and chubbyctl cell backup show FILE",
		r.cfg.ID, own.Index, own.Sum, strings.Join(by, ", "), len(by), len(voters), theirs, r.cfg.Data, disk.ContradictionName, r.cfg.ID, r.cfg.Data)
	err := r.stores.NoteContradiction(disk.Contradiction{
		Index: own.Index, Ours: fmt.Sprintf("%012x", own.Sum), Theirs: fmt.Sprintf("%012x", theirs), By: by, Why: why,
	})
	if err != nil {
		why += fmt.Sprintf(". This could not be noted in the directory (%v): do not start the replica again", err)
	}
	r.fail(identity.Refused("%s", why))
	return true
}

// askForChecks returns the others' checks that arrive in time.
func (r *Replica) askForChecks(ctx context.Context) map[string]peer.Check {
	type answer struct {
		id    string
		check peer.Check
	}
	// A clone: the list is Raft's own.
	others := slices.DeleteFunc(slices.Clone(r.servers()), func(s raft.Server) bool { return string(s.ID) == r.cfg.ID })
	answers := make(chan answer, len(others)) // one of each
	for _, s := range others {
		id := string(s.ID)
		r.prober.Ask(id, string(s.Address), func(report peer.Report) { answers <- answer{id, report.Check} })
	}
	checks := map[string]peer.Check{}
	late := time.NewTimer(memberProbe)
	defer late.Stop()
	for range others {
		select {
		case one := <-answers:
			checks[one.id] = one.check
		case <-late.C:
			return checks
		case <-ctx.Done():
			return nil
		}
	}
	return checks
}
