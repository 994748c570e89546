package peer

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/testbed"
)

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
// missed its beginning, and one that was let in. What is of another cell, or of another directory of this replica, is not believed.
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
			logger := slog.New(slog.DiscardHandler)
			b := &Bootstrapper{Cell: "foo", Members: members, Callers: callers, Identity: &kept{me}, Ask: ask, Clock: testbed.Clock(), Logger: logger, Begin: func() error { begun = true; return nil }}
			if err := b.Complete(ctx); (err == nil) != begun || begun != (name == fits) {
				t.Errorf("%s: it begins: %v, %v", name, begun, err)
			}
			newcomer := &kept{identity.Replica{ID: "r1", Incarnation: "r1-first"}}
			j := &Joiner{Cell: "foo", Members: members[1:], Callers: callers, Identity: newcomer, Ask: ask, Clock: testbed.Clock(), Logger: logger}
			if err := j.Complete(ctx); (err == nil) != newcomer.is.Joined || newcomer.is.Joined != (name == fits || name == "another cell") {
				t.Errorf("%s: it joins: %v, %v", name, newcomer.is.Joined, err)
			}
		})
	}
}
