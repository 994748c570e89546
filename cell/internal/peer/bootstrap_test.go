package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"pgregory.net/rapid"
)

// bootWorld is what bootstrap knows of a cell's members: the contents of their
// disks, which ones run, and what each learnt last.
type bootWorld struct {
	members []identity.Member
	disks   map[string]*identity.Replica
	runs    map[string]bool
	heard   map[string]map[string]BootstrapReport // by asker, then by the member that answered
	drawn   int

	stored map[string]map[string]bool // by cell id: every incarnation that ever stored that roster
	begun  map[string]bool            // by cell id: some member has begun it
}

func newBootWorld(n int) *bootWorld {
	w := &bootWorld{
		disks: map[string]*identity.Replica{}, runs: map[string]bool{}, heard: map[string]map[string]BootstrapReport{},
		stored: map[string]map[string]bool{}, begun: map[string]bool{},
	}
	for i := range n {
		id := fmt.Sprintf("r%d", i+1)
		w.members = append(w.members, identity.Member{ID: id, Raft: id + ":1"})
		w.wipe(id)
	}
	return w
}

// wipe gives a replica an empty disk.
func (w *bootWorld) wipe(id string) {
	w.drawn++
	w.disks[id] = &identity.Replica{ID: id, Incarnation: fmt.Sprintf("%s-%d", id, w.drawn)}
	w.stop(id)
}

// stop ends a replica, which forgets what it learnt.
func (w *bootWorld) stop(id string) { w.runs[id], w.heard[id] = false, map[string]BootstrapReport{} }

// ask lets one replica ask another, if both run.
func (w *bootWorld) ask(asker, other string) {
	if w.runs[asker] && w.runs[other] && asker != other {
		d := w.disks[other]
		w.heard[asker][other] = BootstrapReport{ID: other, Incarnation: d.Incarnation, Members: w.members, Roster: d.Roster, Begun: d.Begun}
	}
}

// step lets a replica take its next step with what it learnt, however long ago.
// It returns the invariant that the step broke, if any.
func (w *bootWorld) step(id string) error {
	me := w.disks[id]
	if !w.runs[id] || me.Begun {
		return nil
	}
	step, err := nextStep(*me, w.members, w.heard[id], nil)
	if err != nil {
		w.stop(id)
		if !errors.Is(err, identity.ErrRefused) {
			return fmt.Errorf("%s failed with %w, which is not a refusal", id, err)
		}
		return nil
	}
	if step.store != nil {
		if me.Roster != nil {
			return fmt.Errorf("%s replaces its roster %s", id, me.Roster.CellID)
		}
		me.Roster = step.store
		if w.stored[me.Roster.CellID] == nil {
			w.stored[me.Roster.CellID] = map[string]bool{}
		}
		w.stored[me.Roster.CellID][me.Incarnation] = true
	}
	if step.begin {
		me.Begun = true
		return w.begin(me.Roster)
	}
	return nil
}

// begin checks that the cell of that roster may be begun.
func (w *bootWorld) begin(r *identity.Roster) error {
	for _, m := range r.Members {
		if !w.stored[r.CellID][m.Incarnation] {
			return fmt.Errorf("%s was begun, and %s never stored it", r.CellID, m.Incarnation)
		}
	}
	w.begun[r.CellID] = true
	for _, d := range w.disks {
		if d.Roster != nil && d.Roster.CellID != r.CellID && w.begun[d.Roster.CellID] {
			return fmt.Errorf("%s was begun while %s had a disk of %s, which had begun before", r.CellID, d.ID, d.Roster.CellID)
		}
	}
	return nil
}

// TestBootstrapBeginsOneCell: members start, crash, lose their disks and act on
// old answers, in any order. No second cell begins while a disk of a cell that
// had begun is left, and a cell begins only after all its members stored its
// roster.
func TestBootstrapBeginsOneCell(t *testing.T) {
	begun := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newBootWorld(rapid.IntRange(1, 5).Draw(t, "members"))
		member := rapid.Custom(func(t *rapid.T) string { return w.members[rapid.IntRange(0, len(w.members)-1).Draw(t, "i")].ID })
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			id := member.Draw(t, "who")
			switch rapid.SampledFrom(strings.Fields("start start start stop wipe ask ask ask ask step step step step round round")).Draw(t, "what") {
			case "start":
				w.runs[id] = true
			case "stop":
				w.stop(id)
			case "wipe":
				if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
					w.wipe(id)
				}
			case "ask":
				w.ask(id, member.Draw(t, "whom"))
			case "step":
				testbed.NoErr(t, w.step(id))
			case "round":
				for _, m := range w.members {
					w.ask(id, m.ID)
				}
				testbed.NoErr(t, w.step(id))
			}
		}
		begun += len(w.begun)
	})
	if begun == 0 {
		t.Error("no cell ever began: the test proves nothing")
	}
}

// TestBootstrapIsCompleted: wherever members crash, the bootstrap is completed
// when all of them run again, as long as no disk is lost.
func TestBootstrapIsCompleted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newBootWorld(rapid.IntRange(1, 5).Draw(t, "members"))
		round := func(crash bool) {
			for _, m := range w.members {
				w.runs[m.ID] = true
				for _, o := range w.members {
					w.ask(m.ID, o.ID)
				}
				if crash && rapid.Bool().Draw(t, "crash before "+m.ID) {
					w.stop(m.ID)
				}
				testbed.NoErr(t, w.step(m.ID))
				if crash && rapid.Bool().Draw(t, "crash after "+m.ID) {
					w.stop(m.ID)
				}
			}
		}
		for range rapid.IntRange(0, 10).Draw(t, "rounds") {
			round(true)
		}
		for range 5 {
			round(false)
		}
		for _, m := range w.members {
			if d := w.disks[m.ID]; !d.Begun || !slices.Equal(d.Roster.Members, w.disks["r1"].Roster.Members) {
				t.Fatalf("%s: %+v; it has not begun the one cell", m.ID, d)
			}
		}
	})
}

// TestBootstrapSaysWhatIsWrong: a replica that waits names every member with
// the reason, and one that must not go on says what an operator has to know.
func TestBootstrapSaysWhatIsWrong(t *testing.T) {
	members := []identity.Member{{ID: "r1", Raft: "h1"}, {ID: "r2", Raft: "h2"}}
	me := identity.Replica{ID: "r1", Incarnation: "i1"}
	ours := func(first, second string) *identity.Roster {
		return &identity.Roster{CellID: "cell1", Members: []identity.Member{{ID: "r1", Raft: "h1", Incarnation: first}, {ID: "r2", Raft: "h2", Incarnation: second}}}
	}
	for name, c := range map[string]struct {
		me     identity.Replica
		report *BootstrapReport // r2's; nil: it does not answer
		waits  string
		fails  string
	}{
		"nobody answers": {me: me, waits: "r2 (no route)"},
		"other members": {
			me: me, report: &BootstrapReport{ID: "r2", Incarnation: "i2", Members: []identity.Member{{ID: "r2", Raft: "h9"}, {ID: "r3", Raft: "h3"}}},
			waits: "r1 is not there, r2 is there at the raft address h9, here at h2, r3 is only there",
		},
		"the cell exists":          {me: me, report: &BootstrapReport{ID: "r2", Incarnation: "i2", Roster: ours("i0", "i2"), Begun: true}, fails: "replica r1 lost its data: replica r2 knows another data directory"},
		"this disk was taken back": {me: me, report: &BootstrapReport{ID: "r2", Incarnation: "i2", Roster: ours("i1", "i2"), Begun: true}, fails: "replica r1 lost entries"},
		"begun with a lost disk":   {me: me, report: &BootstrapReport{ID: "r2", Incarnation: "i2", Roster: ours("i0", "i2")}, fails: "can never be completed"},
		"the other's disk is lost": {
			me:     identity.Replica{ID: "r1", Incarnation: "i1", Roster: ours("i1", "i2")},
			report: &BootstrapReport{ID: "r2", Incarnation: "i9", Members: members}, fails: "another data directory of replica r2",
		},
		"two cells": {
			me:     identity.Replica{ID: "r1", Incarnation: "i1", Roster: ours("i1", "i2")},
			report: &BootstrapReport{ID: "r2", Incarnation: "i2", Roster: &identity.Roster{CellID: "cell2", Members: ours("i1", "i2").Members}}, fails: "bootstrapped separately",
		},
	} {
		heard, failed := map[string]BootstrapReport{}, map[string]error{"r2": errors.New("no route")}
		if c.report != nil {
			heard["r2"] = *c.report
		}
		step, err := nextStep(c.me, members, heard, failed)
		switch {
		case c.fails != "" && (!errors.Is(err, identity.ErrRefused) || !strings.Contains(err.Error(), c.fails)):
			t.Errorf("%s: %v; want a refusal with %q", name, err, c.fails)
		case c.fails == "" && (err != nil || step.begin || step.store != nil || !strings.Contains(strings.Join(step.waiting, ", "), c.waits)):
			t.Errorf("%s: %+v, %v; want to wait for %q", name, step, err, c.waits)
		}
	}
}

// A replica that is in no cell knows where those can be called that called it and are in one, a few of them. One that is in a cell remembers nobody.
func TestCallersAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := memnet.New()
		waits, in := newTraveller(t, wire, identity.Replica{ID: "r9", Incarnation: "r9-first"}), newTraveller(t, wire, memberOf("c1", "r1", "r1-first"))
		newTraveller(t, wire, identity.Replica{ID: "r8", Incarnation: "r8-first"}).call("r9", "r1")
		if list := waits.Callers(); len(list) > 0 {
			t.Errorf("of one that is in no cell it knows %v", list)
		}
		newTraveller(t, wire, memberOf("c1", "r2", "r2-first")).call("r9", "r1")
		if list := waits.Callers(); !slices.Equal(list, []identity.Member{{ID: "r2", Raft: "r2"}}) {
			t.Errorf("it knows %v", list)
		}
		for i := range 2 * maxCallers {
			id := fmt.Sprintf("c%d", i)
			newTraveller(t, wire, memberOf("c1", id, id)).call("r9")
			if list := waits.Callers(); len(list) > maxCallers || !slices.Contains(list, identity.Member{ID: id, Raft: id}) {
				t.Fatalf("after %s it knows %v", id, list)
			}
		}
		if list := in.Callers(); len(list) > 0 {
			t.Errorf("a replica of a cell knows %v", list)
		}
	})
}

// call calls replicas in every way.
func (v *traveller) call(ids ...string) {
	for _, id := range ids {
		for kind := range streamKinds() {
			if conn, err := v.dial(kind, id, id, time.Second); err == nil {
				_ = conn.Close()
			}
		}
	}
	synctest.Wait()
}

// kept is an identity that is kept in memory.
type kept struct{ is identity.Replica }

func (k *kept) Get() identity.Replica { return k.is }

func (k *kept) Store(r *identity.Roster, begun bool) error {
	k.is.Roster, k.is.Begun = r, begun
	return nil
}

func (k *kept) Join(r *identity.Roster) error {
	k.is.Roster, k.is.Joined = r, true
	return nil
}

// Replicas that wait hear from a caller what they wait for, when nobody that they are configured with is left: one that stored the roster of its cell and
// missed its beginning, and one that was let in. A caller of another cell, or one that knows another directory of this replica, is not believed.
func TestCallersAreAsked(t *testing.T) {
	const fits = "it fits"
	for name, edit := range map[string]func(*BootstrapReport){
		fits:                        func(*BootstrapReport) {},
		"it has not begun":          func(r *BootstrapReport) { r.Begun = false },
		"it has no roster":          func(r *BootstrapReport) { r.Roster = nil },
		"another cell":              func(r *BootstrapReport) { r.Roster.CellID = "c2" },
		"another directory of ours": func(r *BootstrapReport) { r.Roster.Members[0].Incarnation = "r1-new" },
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begun, me := false, memberOf("c1", "r1", "r1-first")
			me.Begun = false
			members := []identity.Member{{ID: "r1"}, {ID: "r2"}, {ID: "r3"}}
			callers := func() []identity.Member { return []identity.Member{{ID: "r6", Raft: "r6"}} }
			ask := func(m identity.Member) (BootstrapReport, error) {
				if m.ID != "r6" {
					return BootstrapReport{}, fmt.Errorf("%s is gone", m.ID)
				}
				report := BootstrapReport{ID: "r6", Incarnation: "r6-first", Roster: memberOf("c1", "r6", "").Roster, Begun: true}
				report.Roster.Members = append(report.Roster.Members, identity.Member{ID: "r6", Incarnation: "r6-first"})
				edit(&report)
				return report, nil
			}
			outsider := func(is identity.Replica, members []identity.Member) (*kept, *Outsider) {
				k := &kept{is}
				return k, &Outsider{Cell: "foo", Members: members, Callers: callers, Identity: k, Ask: ask, Clock: testbed.Clock(), Logger: slog.New(slog.DiscardHandler)}
			}
			_, o := outsider(me, members)
			if err := o.Begin(ctx, func() error { begun = true; return nil }); (err == nil) != begun || begun != (name == fits) {
				t.Errorf("%s: it begins: %v, %v", name, begun, err)
			}
			newcomer, o := outsider(identity.Replica{ID: "r1", Incarnation: "r1-first"}, members[1:])
			if err := o.Join(ctx, "cell add"); (err == nil) != newcomer.is.Joined || newcomer.is.Joined != (name == fits || name == "another cell") {
				t.Errorf("%s: it joins: %v, %v", name, newcomer.is.Joined, err)
			}
		})
	}
}
