package peer

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/session"
)

// A cell is bootstrapped once, by all its members together, in two phases that
// are stored on the disk (docs/adr/0009-bootstrap-and-identity.md has the
// argument). Each member asks every other again and again what it holds, and
// takes the next step on its own:
//
//  1. The member with the lowest ID, when every other one says that it holds
//     nothing, is bootstrapping, and has the same list of members, draws the
//     roster: the cell's id and the incarnation of each member. It stores it.
//  2. A member that holds nothing stores a roster that another one shows it, if the
//     roster has its own incarnation.
//  3. A member that has stored the roster begins (writes the first entry of the
//     log and starts Raft) when every other one has stored it, too, or one says
//     that it has begun.
//
// So a cell in which anybody has voted or acknowledged anything is known to every
// directory that its roster names, and a roster that names a directory which is
// gone can never be begun. What is stored is never replaced: a replica that finds
// it contradicted refuses to run.

// BootstrapReport is what a replica answers to a replica that bootstraps.
type BootstrapReport struct {
	ID          string            `json:"id"`
	Incarnation string            `json:"incarnation"`
	Members     []identity.Member `json:"members"` // as its configuration has them, without incarnations
	Roster      *identity.Roster  `json:"roster,omitempty"`
	Begun       bool              `json:"begun,omitempty"`

	// Of a replica that waits to be let into a cell, and of one that was.
	Joins    bool   `json:"joins,omitempty"`
	Client   string `json:"client,omitempty"` // where clients reach it
	HTTP     string `json:"http,omitempty"`
	MaxLevel int    `json:"max_level,omitempty"`
}

// bootstrapStep is what a member must do next.
type bootstrapStep struct {
	store   *identity.Roster // store this roster
	begin   bool             // write the first entry and start Raft
	waiting []string         // otherwise, the members to wait for, each with the reason
}

// nextStep decides what the member with that identity and list of members does after it
// has asked the others. heard has the reports of the members that answered, and failed
// the errors of the others.
func nextStep(me identity.Replica, members []identity.Member, heard map[string]BootstrapReport, failed map[string]error) (bootstrapStep, error) {
	for _, m := range members {
		r, ok := heard[m.ID]
		if !ok || m.ID == me.ID {
			continue
		}
		if err := checkContradiction(me, r); err != nil {
			return bootstrapStep{}, err
		}
	}
	step := bootstrapStep{}
	stored := 1
	for _, m := range members {
		r, ok := heard[m.ID]
		switch {
		case m.ID == me.ID:
		case !ok:
			step.waiting = append(step.waiting, fmt.Sprintf("%s (%s)", m.ID, reasonOf(failed[m.ID])))
		case r.Roster != nil && me.Roster == nil && r.Roster.Lists(members):
			return bootstrapStep{store: r.Roster}, nil
		case r.Roster != nil && me.Roster == nil:
			step.waiting = append(step.waiting, fmt.Sprintf("%s (it bootstraps a cell of other members: %s)", m.ID, identity.Difference(members, r.Roster.Members)))
		case r.Roster != nil && r.Begun:
			return bootstrapStep{begin: true}, nil
		case r.Roster != nil:
			stored++
		case !slices.Equal(r.Members, members):
			step.waiting = append(step.waiting, fmt.Sprintf("%s (it is configured with other members: %s)", m.ID, identity.Difference(members, r.Members)))
		case me.Roster != nil || !isLowest(me.ID, members):
			step.waiting = append(step.waiting, m.ID+" (it waits as well)")
		}
	}
	switch {
	//mutant: case me.Roster != nil && stored > len(members)/2:
	case me.Roster != nil && stored == len(members):
		step.begin = true
	//mutant: case me.Roster == nil && isLowest(me.ID, members) && len(heard) >= len(members)/2: //by TestBootstrapWaitsForAll of ./cell
	case me.Roster == nil && isLowest(me.ID, members) && len(step.waiting) == 0:
		drawn, err := drawRoster(me, members, heard)
		return bootstrapStep{store: drawn}, err
	}
	return step, nil
}

// checkContradiction compares what another member reports with what this one holds. Its
// error is why this replica must not run.
func checkContradiction(me identity.Replica, r BootstrapReport) error {
	switch {
	case r.Roster == nil && me.Roster == nil:
		return nil
	case r.Roster == nil:
		if known := me.Roster.IncarnationOf(r.ID); known != r.Incarnation {
			return incompletable(me.ID, r.ID, me.Roster.CellID)
		}
		return nil
	case r.Roster.IncarnationOf(r.ID) != r.Incarnation:
		return identity.Refused("replica %s shows a cell, with the id %.12s, that does not know its data directory: its files are not of one replica", r.ID, r.Roster.CellID)
	case me.Roster != nil && me.Roster.CellID != r.Roster.CellID:
		return identity.Refused("replica %s is of the cell with the id %.12s, and this data directory of the one with the id %.12s: they were bootstrapped separately. Which is the right one? %s",
			r.ID, r.Roster.CellID, me.Roster.CellID, identity.LossAdvice)
	case r.Roster.IncarnationOf(me.ID) == me.Incarnation:
		if r.Begun && me.Roster == nil {
			return lostEntries(me.ID, 0, r.ID, 1) // it had stored the roster: otherwise that replica could not have begun
		}
		return nil
	case r.Begun:
		return lostData(me.ID, r.ID, r.Roster.CellID)
	default:
		return incompletable(r.ID, me.ID, r.Roster.CellID)
	}
}

// incompletable is the refusal of a bootstrap that can never be completed.
func incompletable(holder, gone, cellID string) error {
	return identity.Refused("the bootstrap of the cell with the id %.12s can never be completed: replica %s had begun it with another data directory of replica %s, which is gone. "+
		"If no replica of this cell has ever become ready, remove the data directories of all of them and start them again with --bootstrap. Otherwise %s", cellID, holder, gone, identity.LossAdvice)
}

// isLowest reports whether no member has an ID before this one.
func isLowest(id string, members []identity.Member) bool {
	return !slices.ContainsFunc(members, func(m identity.Member) bool { return m.ID < id })
}

// drawRoster makes the roster of a new cell of the members that were heard.
func drawRoster(me identity.Replica, members []identity.Member, heard map[string]BootstrapReport) (*identity.Roster, error) {
	id, err := identity.RandomID()
	if err != nil {
		return nil, err
	}
	r := &identity.Roster{CellID: id}
	for _, m := range members {
		m.Incarnation = me.Incarnation
		if m.ID != me.ID {
			m.Incarnation = heard[m.ID].Incarnation
		}
		r.Members = append(r.Members, m)
	}
	return r, nil
}

// reasonOf says, as briefly as possible, why a member was not heard.
func reasonOf(err error) string {
	if err == nil {
		return "not asked yet"
	}
	return err.Error()
}

const (
	maxBootstrapAnswer = time.Second            // for one member's answer
	firstRoundsPause   = 100 * time.Millisecond // between two rounds, in firstRounds
	laterRoundsPause   = 500 * time.Millisecond // between two rounds, later
	firstRounds        = 5 * time.Second        // since the beginning
	bootstrapLogEvery  = 5 * time.Second        // between log lines
)

// identityStore keeps the identity of a member durably.
type identityStore interface {
	Get() identity.Replica
	Store(r *identity.Roster, begun bool) error
}

// Bootstrapper takes a member through its cell's bootstrap.
type Bootstrapper struct {
	Cell     string
	Members  []identity.Member
	Callers  func() []identity.Member // replicas of a cell that have called: all other members may have left meanwhile
	Identity identityStore
	Ask      func(m identity.Member) (BootstrapReport, error) // returns within maxBootstrapAnswer
	Begin    func() error                                     // writes the first entry
	Clock    session.Clock
	Logger   *slog.Logger
}

// Complete returns when the cell has begun here. It fails when ctx ends, or when the
// cell must not be bootstrapped.
func (b *Bootstrapper) Complete(ctx context.Context) error {
	began := b.Clock()
	told := began.Add(-bootstrapLogEvery)
	for {
		heard, failed := b.askAll()
		step, err := nextStep(b.Identity.Get(), b.Members, heard, failed)
		step.begin = step.begin || b.hasBegun()
		switch {
		case err != nil:
			return err
		case step.store != nil:
			if err := b.Identity.Store(step.store, false); err != nil {
				return err
			}
			continue
		case step.begin:
			b.Logger.Info("the cell has begun", "event", "cell_began", "cell", b.Cell, "cell_id", b.Identity.Get().Roster.CellID, "members", len(b.Members))
			return b.Begin()
		}
		now := b.Clock()
		if now.Sub(told) >= bootstrapLogEvery {
			told = now
			b.Logger.Info("bootstrap: waiting for every member of the cell", "cell", b.Cell, "waiting_for", strings.Join(step.waiting, ", "))
		}
		pause := firstRoundsPause
		if now.Sub(began) > firstRounds {
			pause = laterRoundsPause
		}
		select {
		case <-ctx.Done():
			return &api.Error{Code: api.Cancelled, Op: "bootstrap cell " + b.Cell, Message: "stopped while waiting for " + strings.Join(step.waiting, ", "), Err: context.Cause(ctx)}
		case <-time.After(pause):
		}
	}
}

// hasBegun reports whether a replica that came to the cell later says that the cell has begun whose roster is stored here.
func (b *Bootstrapper) hasBegun() bool {
	me := b.Identity.Get()
	return me.Roster != nil && slices.ContainsFunc(b.Callers(), func(m identity.Member) bool {
		r, err := b.Ask(m)
		return err == nil && r.Begun && r.Roster != nil && r.Roster.CellID == me.Roster.CellID && r.Roster.IncarnationOf(me.ID) == me.Incarnation
	})
}

// askAll asks every other member at once what it holds.
func (b *Bootstrapper) askAll() (heard map[string]BootstrapReport, failed map[string]error) {
	return askAll(b.Members, b.Identity.Get().ID, b.Ask)
}

// askAll asks all members but one at once what they hold.
func askAll(members []identity.Member, me string, ask func(identity.Member) (BootstrapReport, error)) (heard map[string]BootstrapReport, failed map[string]error) {
	var mu sync.Mutex // guards the maps
	heard, failed = map[string]BootstrapReport{}, map[string]error{}
	var asking sync.WaitGroup
	for _, m := range members {
		if m.ID == me {
			continue
		}
		asking.Go(func() {
			r, err := ask(m)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[m.ID] = err
				return
			}
			heard[m.ID] = r
		})
	}
	asking.Wait()
	return heard, failed
}
