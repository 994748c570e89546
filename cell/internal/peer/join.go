package peer

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/session"
)

type joiningStore interface {
	Get() identity.Replica
	Join(r *identity.Roster) error
}

// Joiner takes a replica with an empty data directory into a running cell, once an operator has added it there
// and a roster has its incarnation. Until then it takes part in nothing, and has promised nothing. It asks its
// configured replicas and its callers, among them the master that added it.
type Joiner struct {
	Cell     string
	Members  []identity.Member        // replicas of the cell to ask
	Callers  func() []identity.Member // further replicas to ask: all of Members may have left meanwhile
	Address  string                   // this replica's Raft address, for the log
	Spare    bool                     // it joins as a spare, for the log
	Identity joiningStore
	Ask      func(m identity.Member) (BootstrapReport, error) // returns within maxBootstrapAnswer
	Clock    session.Clock
	Logger   *slog.Logger
}

// Complete returns when the cell has let this replica in. It fails when ctx ends, or if the cell has known
// another replica with this ID.
func (j *Joiner) Complete(ctx context.Context) error {
	began := j.Clock()
	told := began.Add(-bootstrapLogEvery)
	for {
		me := j.Identity.Get()
		members := slices.Clone(j.Members)
		for _, m := range j.Callers() {
			if !slices.ContainsFunc(members, func(o identity.Member) bool { return o.ID == m.ID }) {
				members = append(members, m)
			}
		}
		heard, failed := askAll(members, me.ID, j.Ask)
		roster, err := admittedBy(me, heard)
		switch {
		case err != nil:
			return err
		case roster != nil:
			j.Logger.Info("the cell has let this replica in", "event", "member_admitted", "cell", j.Cell, "cell_id", roster.CellID)
			return j.Identity.Join(roster)
		}
		now := j.Clock()
		if now.Sub(told) >= bootstrapLogEvery {
			told = now
			run := fmt.Sprintf("chubbyctl cell add %s %s", me.ID, j.Address)
			if j.Spare {
				run += " --spare, if that was not done"
			}
			j.Logger.Info("waiting to be added to the cell", "cell", j.Cell, "advice", run, "said", whatIsKnown(members, me.ID, heard, failed))
		}
		pause := firstRoundsPause
		if now.Sub(began) > firstRounds {
			pause = laterRoundsPause
		}
		select {
		case <-ctx.Done():
			return &api.Error{Code: api.Cancelled, Op: "join cell " + j.Cell, Message: "stopped before it was added (chubbyctl cell add)", Err: context.Cause(ctx)}
		case <-time.After(pause):
		}
	}
}

// admittedBy returns the roster of a replica that knows this one, or nil. Its error is why this replica must not run.
func admittedBy(me identity.Replica, heard map[string]BootstrapReport) (*identity.Roster, error) {
	for _, r := range heard {
		if r.Roster == nil || !r.Begun {
			continue
		}
		switch known := r.Roster.IncarnationOf(me.ID); {
		//mutant: case r.Roster.HasLeft(me.ID): //by TestChangesOfMembersAreRefused of ./cell
		case r.Roster.HasLeft(me.ID), known != "" && known != me.Incarnation:
			return nil, identity.Refused("the cell has, or has had, another replica %s, and no ID is used twice: choose another, in an empty data directory", me.ID)
		case known != "":
			return r.Roster, nil
		}
	}
	return nil, nil
}

func whatIsKnown(members []identity.Member, me string, heard map[string]BootstrapReport, failed map[string]error) string {
	var words []string
	for _, m := range members {
		r, ok := heard[m.ID]
		switch {
		case m.ID == me:
		case !ok:
			words = append(words, fmt.Sprintf("%s (%s)", m.ID, reasonOf(failed[m.ID])))
		case r.Roster == nil || !r.Begun:
			words = append(words, m.ID+" (its cell has not begun)")
		default:
			words = append(words, m.ID+" (it does not know this replica)")
		}
	}
	return strings.Join(words, ", ")
}
