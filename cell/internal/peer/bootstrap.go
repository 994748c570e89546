package peer

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/session"
)

// All members bootstrap a cell together, once, in two phases that are stored on disk
// (docs/adr/0009-bootstrap-and-identity.md has the argument). Each member repeatedly asks the others what they
// hold, and takes the next step on its own:
//
//  1. The member with the lowest ID draws and stores the roster (the cell's id and each member's incarnation), once
//     every other member reports that it holds nothing, bootstraps, and has the same list of members.
//  2. A member that holds nothing stores another's roster, if that has its own incarnation.
//  3. A member with a stored roster begins (writes the first entry of the log and starts Raft) when every other
//     one has stored it, or one has begun.
//
// So every directory of a roster knows the cell before anybody votes or acknowledges, and a roster with a lost
// directory can never begin. A roster is never replaced: a contradicted replica refuses to run.

type bootstrapStep struct {
	store   *identity.Roster // store this roster
	begin   bool             // write the first entry and start Raft
	waiting []string         // otherwise, the members to wait for, with reasons
}

// nextStep decides a member's step. heard has the reports of the others, and failed their errors.
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

// checkContradiction compares another's report with this member. Its error is why this replica must not run.
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
			return lostEntries(me.ID, 0, r.ID, 1) // it had stored the roster, else that replica could not have begun
		}
		return nil
	case r.Begun:
		return lostData(me.ID, r.ID, r.Roster.CellID)
	default:
		return incompletable(r.ID, me.ID, r.Roster.CellID)
	}
}

func incompletable(holder, gone, cellID string) error {
	return identity.Refused("the bootstrap of the cell with the id %.12s can never be completed: replica %s had begun it with another data directory of replica %s, which is gone. "+
		"If no replica of this cell has ever become ready, remove the data directories of all of them and start them again with --bootstrap. Otherwise %s", cellID, holder, gone, identity.LossAdvice)
}

func isLowest(id string, members []identity.Member) bool {
	return !slices.ContainsFunc(members, func(m identity.Member) bool { return m.ID < id })
}

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

func reasonOf(err error) string {
	if err == nil {
		return "not asked yet"
	}
	return err.Error()
}

const (
	maxBootstrapAnswer = time.Second            // for one member's answer
	firstRoundsPause   = 100 * time.Millisecond // between two rounds, during firstRounds
	laterRoundsPause   = 500 * time.Millisecond // between later rounds
	firstRounds        = 5 * time.Second        // since the beginning
	bootstrapLogEvery  = 5 * time.Second        // between log lines
)

type identityStore interface {
	Get() identity.Replica
	Store(r *identity.Roster, begun bool) error
	Join(r *identity.Roster) error
}

// Outsider is a replica whose data directory is in no cell yet. It bootstraps its cell with the other members, or
// joins a running one. Until then it takes part in nothing, and has promised nothing.
type Outsider struct {
	Cell     string
	Members  []identity.Member        // the configured replicas of the cell
	Callers  func() []identity.Member // callers in a cell: all of Members may have left
	Identity identityStore
	Ask      func(m identity.Member) (BootstrapReport, error) // returns within maxBootstrapAnswer
	Clock    session.Clock
	Logger   *slog.Logger
}

// Begin returns when the cell has begun here; begin writes the first entry. It fails when ctx ends, or if this
// cell must not be bootstrapped.
func (o *Outsider) Begin(ctx context.Context, begin func() error) error {
	var waiting string
	say := func() {
		o.Logger.Info("bootstrap: waiting for every member of the cell", "cell", o.Cell, "waiting_for", waiting)
	}
	stopped := func() *api.Error {
		return &api.Error{Op: "bootstrap cell " + o.Cell, Message: "stopped while waiting for " + waiting}
	}
	return o.repeat(ctx, say, stopped, func() (done bool, err error) {
		var step bootstrapStep
		for {
			heard, failed := askAll(o.Members, o.Identity.Get().ID, o.Ask)
			step, err = nextStep(o.Identity.Get(), o.Members, heard, failed)
			step.begin = step.begin || o.hasBegun()
			if err != nil || step.store == nil {
				break
			}
			if err := o.Identity.Store(step.store, false); err != nil {
				return false, err
			}
		}
		waiting = strings.Join(step.waiting, ", ")
		if err != nil || !step.begin {
			return false, err
		}
		id := o.Identity.Get().Roster.CellID
		o.Logger.Info("the cell has begun", "event", "cell_began", "cell", o.Cell, "cell_id", id, "members", len(o.Members))
		return true, begin()
	})
}

// repeat asks, in rounds, until one is done or fails, or ctx ends, which gives the error of stopped. While it
// waits, say logs for what.
func (o *Outsider) repeat(ctx context.Context, say func(), stopped func() *api.Error, round func() (done bool, err error)) error {
	began := o.Clock()
	told := began.Add(-bootstrapLogEvery)
	for {
		if done, err := round(); done || err != nil {
			return err
		}
		now := o.Clock()
		if now.Sub(told) >= bootstrapLogEvery {
			told = now
			say()
		}
		pause := firstRoundsPause
		if now.Sub(began) > firstRounds {
			pause = laterRoundsPause
		}
		select {
		case <-ctx.Done():
			e := stopped()
			e.Code, e.Err = api.Cancelled, context.Cause(ctx)
			return e
		case <-time.After(pause):
		}
	}
}

// hasBegun reports whether a later member says that the stored roster's cell has begun.
func (o *Outsider) hasBegun() bool {
	me := o.Identity.Get()
	return me.Roster != nil && slices.ContainsFunc(o.Callers(), func(m identity.Member) bool {
		r, err := o.Ask(m)
		return err == nil && r.Begun && r.Roster != nil && r.Roster.CellID == me.Roster.CellID && r.Roster.IncarnationOf(me.ID) == me.Incarnation
	})
}

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

// AskBootstrap asks a replica what it holds.
func (p *Port) AskBootstrap(m identity.Member) (BootstrapReport, error) {
	var r BootstrapReport
	conn, err := p.dial(bootstrapStream, m.ID, m.Raft, maxBootstrapAnswer)
	if err != nil {
		return r, err
	}
	defer func() { _ = conn.Close() }() // everything was read, or err says why not
	late := time.AfterFunc(maxBootstrapAnswer, func() { _ = conn.Close() })
	defer late.Stop()
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return r, fmt.Errorf("ask replica %s what it holds: %w", m.ID, err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxReport {
		return r, api.Errorf(api.Corrupt, "replica %s reports %d bytes, more than %d", m.ID, n, maxReport)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(conn, text); err != nil {
		return r, fmt.Errorf("ask replica %s what it holds: %w", m.ID, err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, api.Errorf(api.Corrupt, "replica %s reports what cannot be read: %v", m.ID, err)
	}
	if r.ID != m.ID {
		return r, api.Errorf(api.Unavailable, "replica %.64q reports, not %q", r.ID, m.ID)
	}
	return r, nil
}

// Join returns when an operator has added this replica to the cell, and a roster has its incarnation. It asks the
// configured replicas and the callers, among them the master that added it. It fails when ctx ends, or if the cell
// has known another replica with this ID. add is the command that adds it, for the log.
func (o *Outsider) Join(ctx context.Context, add string) error {
	var said string
	say := func() {
		o.Logger.Info("waiting to be added to the cell", "cell", o.Cell, "advice", add, "said", said)
	}
	stopped := func() *api.Error {
		return &api.Error{Op: "join cell " + o.Cell, Message: "stopped before it was added (chubbyctl cell add)"}
	}
	return o.repeat(ctx, say, stopped, func() (done bool, err error) {
		me := o.Identity.Get()
		members := slices.Clone(o.Members)
		for _, m := range o.Callers() {
			if !slices.ContainsFunc(members, func(o identity.Member) bool { return o.ID == m.ID }) {
				members = append(members, m)
			}
		}
		heard, failed := askAll(members, me.ID, o.Ask)
		said = whatIsKnown(members, me.ID, heard, failed)
		roster, err := admittedBy(me, heard)
		if err != nil || roster == nil {
			return false, err
		}
		o.Logger.Info("the cell has let this replica in", "event", "member_admitted", "cell", o.Cell, "cell_id", roster.CellID)
		return true, o.Identity.Join(roster)
	})
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
