package cell_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// rested is longer than a master has to have served before a drill begins.
const rested = 11 * time.Second

// witness is a client that works all the time while a drill goes on: it holds a lock, and writes.
type witness struct {
	lock *client.Lock

	mu      sync.Mutex // guards what follows
	states  []session.State
	longest time.Duration
	wrong   error
	stop    context.CancelFunc
	done    chan struct{}
}

// newWitness begins to work.
func newWitness(t *testing.T, ctx context.Context, c *celltest.Cell, cfg client.Config) *witness {
	t.Helper()
	w := &witness{done: make(chan struct{})}
	cfg.OnState = func(s client.StateChange) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.states = append(w.states, s.State)
	}
	cl := dial(t, ctx, c, "witness", cfg)
	h := open(t, ctx, cl, "/ls/local/witness", 0)
	w.lock = acquire(t, ctx, open(t, ctx, cl, "/ls/local/witness-lock", api.MaxLockDelay))
	ctx, w.stop = context.WithCancel(ctx)
	go func() {
		defer close(w.done)
		for last := time.Now(); ctx.Err() == nil; last = time.Now() {
			_, err := h.SetContents(ctx, []byte("x"))
			w.mu.Lock()
			if w.longest = max(w.longest, time.Since(last)); err != nil && ctx.Err() == nil && w.wrong == nil {
				w.wrong = err
			}
			w.mu.Unlock()
			pause(ctx, 10*time.Millisecond)
		}
	}()
	t.Cleanup(func() { w.end() })
	return w
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// end ends the work, and returns how long the longest wait for an answer was, and the states of the session.
func (w *witness) end() (time.Duration, []session.State, error) {
	w.stop()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.longest, w.states, w.wrong
}

// An outage lasts as long as was asked for, and ends by itself with a master of a later epoch. A client sees it as an outage: its
// calls wait, its session is in jeopardy and then safe, and its lock, which has a lock-delay that outlasts it, is kept.
func TestDrillOutage(t *testing.T) {
	for _, length := range []time.Duration{2 * time.Second, 20 * time.Second} {
		t.Run(length.String(), func(t *testing.T) {
			inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
				w := newWitness(t, ctx, c, client.Config{})
				time.Sleep(rested)
				before, epoch := c.Master(), c.Replica(c.Master()).Health().Epoch
				master, wait, err := client.BeginDrill(ctx, operator, client.Drill{Kind: client.DrillOutage, For: length})
				if err != nil || master != before {
					t.Fatal(master, err)
				}
				time.Sleep(length - time.Second)
				if h := c.Replica(before).Health(); h.Ready || h.Drill != "outage" {
					t.Errorf("after %v of %v: %+v", length-time.Second, length, h)
				}
				if err := wait(); err != nil {
					t.Error(err)
				}
				time.Sleep(5 * time.Second)
				if after := c.Replica(c.Master()).Health(); after.Epoch <= epoch || after.Drill != "" {
					t.Errorf("epoch %d before, and then %+v", epoch, after)
				}
				longest, states, err := w.end()
				if err != nil || w.lock.Err() != nil {
					t.Errorf("the work: %v; the lock: %v", err, w.lock.Err())
				}
				if longest < length-time.Second || longest > length+3*time.Second {
					t.Errorf("an outage of %v was one of %v for a client", length, longest)
				}
				want := []session.State{session.Jeopardy, session.Safe}
				if length < api.DefaultLease-session.Due(api.DefaultLease) {
					want = nil
				}
				if len(states) != len(want) || len(want) > 0 && (states[0] != want[0] || states[1] != want[1]) {
					t.Errorf("the session was %v, want %v", states, want)
				}
			})
		})
	}
}

// The end of the call ends the outage at once: the operator cancels it, or is gone.
func TestDrillOutageEndsWithItsCaller(t *testing.T) {
	for _, how := range []string{"cancelled", "killed"} {
		t.Run(how, func(t *testing.T) {
			inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
				w := newWitness(t, ctx, c, client.Config{})
				time.Sleep(rested)
				during, end := context.WithCancel(ctx)
				defer end()
				_, wait, err := client.BeginDrill(during, operator, client.Drill{Kind: client.DrillOutage, For: api.MaxOutage})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				if how == "cancelled" {
					end()
					if err := wait(); err != nil {
						t.Error(err)
					}
				} else {
					c.Reset("operator")
				}
				time.Sleep(3 * time.Second)
				if longest, states, err := w.end(); err != nil || longest < 2*time.Second || longest > 4500*time.Millisecond || len(states) > 0 || w.lock.Err() != nil {
					t.Errorf("no answer for %v, the session was %v, the lock %v; %v", longest, states, w.lock.Err(), err)
				}
			})
		})
	}
}

// An outage ends when its operator's certificate is revoked, although there is no master who could ask for rights: his connections are closed.
func TestDrillOutageEndsWithItsCertificate(t *testing.T) {
	inTLSCell(t, func(t *testing.T, ctx context.Context, c tlsCell) {
		files := c.clients.client("ops")
		operator := dial(t, ctx, c.Cell, "operator", client.Config{TLS: files, NoCache: true})
		time.Sleep(rested)
		began := time.Now()
		before, _, err := client.BeginDrill(ctx, operator, client.Drill{Kind: client.DrillOutage, For: api.MaxOutage})
		if err != nil {
			t.Fatal(err)
		}
		c.clients.revoke(c.crl, files.Cert)
		for c.Replica(before).Health().Drill != "" {
			time.Sleep(100 * time.Millisecond) // virtual
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("an outage whose operator's certificate was revoked after its beginning lasted %v", took)
		}
	}, func(cfg *cell.Config) { cfg.Operators = []string{"ops"} })
}

// The death of the master ends the outage: the others elect as at any other death.
func TestDrillOutageEndsWithItsMaster(t *testing.T) {
	for what, harm := range map[string]func(c *celltest.Cell, master string){
		"killed": (*celltest.Cell).Kill,
		"cut":    func(c *celltest.Cell, master string) { c.Cut(master) },
	} {
		t.Run(what, func(t *testing.T) {
			inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
				w := newWitness(t, ctx, c, client.Config{})
				time.Sleep(rested)
				master, _, err := client.BeginDrill(ctx, operator, client.Drill{Kind: client.DrillOutage, For: api.MaxOutage})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				harm(c, master)
				time.Sleep(8 * time.Second)
				if longest, _, err := w.end(); err != nil || longest < 2*time.Second || longest > 8*time.Second || w.lock.Err() != nil {
					t.Errorf("no answer for %v, the lock %v; %v", longest, w.lock.Err(), err)
				}
			})
		})
	}
}

// A master that gives up without a word is replaced after the election timeout, by another replica, and comes back as
// a replica.
func TestDrillHardFailOver(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		w := newWitness(t, ctx, c, client.Config{})
		time.Sleep(rested)
		for range 3 {
			during, end := context.WithCancel(ctx)
			before, wait, err := client.BeginDrill(during, operator, client.Drill{Kind: client.DrillHardFailOver, For: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if after := c.Master(); after == before {
				t.Errorf("%s is the master as before", after)
			}
			if h := c.Replica(before).Health(); h.Role != "replica" || !h.Ready || h.Drill != "hard-failover" {
				t.Errorf("the master that gave up: %+v", h)
			}
			end()
			if err := wait(); err != nil {
				t.Error(err)
			}
			time.Sleep(rested)
		}
		if longest, states, err := w.end(); err != nil || longest < cell.DefaultElectionTimeout || longest > 4*time.Second || len(states) > 0 || w.lock.Err() != nil {
			t.Errorf("no answer for %v, the session was %v, the lock %v; %v", longest, states, w.lock.Err(), err)
		}
	})
}

// There is one drill at a time, none while the cell recovers from a fail-over, none without another replica, and none for strangers, who
// are told of none.
func TestDrillsAreRefused(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		root, eve := as(t, ctx, c, "root"), as(t, ctx, c, "eve")
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if _, _, err := client.BeginDrill(short, root, client.Drill{Kind: client.DrillSlowClient, For: time.Second}); !errors.Is(err, api.Unavailable) {
			t.Errorf("a drill of a master that has just begun: %v", err)
		}
		if _, _, err := client.BeginDrill(ctx, root, client.Drill{Kind: client.DrillSlowClient, For: time.Minute}); err != nil {
			t.Fatal("it waits until the cell has rested:", err)
		}
		if _, _, err := client.BeginDrill(ctx, root, client.Drill{Kind: client.DrillOutage, For: time.Minute / 2}); !errors.Is(err, api.QuotaExceeded) || !strings.Contains(err.Error(), "slow-client") {
			t.Errorf("a second drill: %v", err)
		}
		for _, kind := range []client.DrillKind{client.DrillFailOver, client.DrillHardFailOver, client.DrillOutage, client.DrillSessionLoss, client.DrillSlowClient} {
			_, _, err := client.BeginDrill(ctx, eve, client.Drill{Kind: kind, For: time.Second})
			if !errors.Is(err, api.PermissionDenied) || strings.Contains(err.Error(), "slow-client") {
				t.Errorf("a stranger's %v: %v", kind, err)
			}
		}
		for _, d := range []client.Drill{
			{Kind: client.DrillOutage, For: api.MaxOutage + 1}, {Kind: client.DrillFailOver, For: api.MaxDrill + 1}, {Kind: client.DrillOutage}, {Kind: 6, For: 1}, {Kind: 255, For: 1},
		} {
			if _, _, err := client.BeginDrill(ctx, root, d); !errors.Is(err, api.InvalidArgument) {
				t.Errorf("%+v: %v", d, err)
			}
		}
		time.Sleep(time.Minute + 10*time.Second)
		if _, wait, err := client.BeginDrill(ctx, root, client.Drill{Kind: client.DrillOutage, For: time.Second}); err != nil || wait() != nil {
			t.Errorf("when the first had ended by itself: %v", err)
		}
	}, func(cfg *cell.Config) { cfg.Operators = []string{"root"} })
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		root := dial(t, ctx, c, "root", client.Config{})
		time.Sleep(rested)
		for _, kind := range []client.DrillKind{client.DrillOutage, client.DrillHardFailOver} {
			if _, _, err := client.BeginDrill(ctx, root, client.Drill{Kind: kind, For: time.Second}); !errors.Is(err, api.InvalidArgument) {
				t.Errorf("%v of a cell of one: %v", kind, err)
			}
		}
	})
}

// Listings say what there is to know before a drill: of a holder whether a sequencer of its lock was shown to the master, and its
// lock-delay; and after one, which sessions were not heard of since.
func TestListingsForDrills(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "holder", client.Config{NoCache: true})
		lock := acquire(t, ctx, open(t, ctx, cl, "/ls/local/lock", 7*time.Second))
		holder := func() api.Holder {
			locks, err := cl.Cell().Locks(ctx, "/ls/local/lock")
			if err != nil || len(locks) != 1 || len(locks[0].Holders) != 1 {
				t.Fatal(locks, err)
			}
			return locks[0].Holders[0]
		}
		if h := holder(); h.Checked || h.LockDelay != 7*time.Second {
			t.Errorf("before a sequencer was shown: %+v", h)
		}
		if err := cl.CheckSequencer(ctx, lock.Sequencer().String()); err != nil {
			t.Fatal(err)
		}
		if h := holder(); !h.Checked {
			t.Errorf("after one was shown: %+v", h)
		}
		gone := dial(t, ctx, c, "gone", client.Config{NoCache: true})
		c.Cut("gone")
		c.FailOver()
		time.Sleep(2 * time.Second)
		for id, want := range map[api.SessionID]bool{cl.Session(): false, gone.Session(): true} {
			if s, found, err := cl.Cell().FindSession(ctx, id); err != nil || !found || s.Unheard != want {
				t.Errorf("%v: %+v, %v, %v; want unheard: %v", id, s, found, err, want)
			}
		}
	})
}

// An outage is recorded with who asked for it, although there is no master any more when it has ended.
func TestDrillIsAudited(t *testing.T) {
	inAuditedCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell, records func() []auditRecord) {
		root := as(t, ctx, c, "root")
		time.Sleep(rested)
		_, wait, err := client.BeginDrill(ctx, root, client.Drill{Kind: client.DrillOutage, For: time.Second, Reason: "because"})
		if err != nil {
			t.Fatal(err)
		}
		if err := wait(); err != nil {
			t.Error(err)
		}
		all := records()
		if len(all) != 1 || all[0].Call != "Drill" || all[0].Principal != "root" || all[0].On != "drill outage" || all[0].Reason != "because" || all[0].Code != "OK" {
			t.Errorf("%+v", all)
		}
	})
}

// A drill ends soon after its master: the next one may begin another, and there is one at a time.
func TestDrillEndsSoonAfterItsMaster(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		first, second := dial(t, ctx, c, "first", client.Config{NoCache: true}), dial(t, ctx, c, "second", client.Config{NoCache: true})
		time.Sleep(rested)
		before, _, err := client.BeginDrill(ctx, first, client.Drill{Kind: client.DrillSlowClient, For: api.MaxDrill})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if h := c.Replica(before).Health(); h.Drill != "slow-client" {
			t.Errorf("the drill does not go on: %+v", h)
		}
		c.Transfer()
		after, wait, err := client.BeginDrill(ctx, second, client.Drill{Kind: client.DrillOutage, For: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if h := c.Replica(before).Health(); h.Drill != "" {
			t.Errorf("%s has an outage, and beside it there is on %s: %s", after, before, h.Drill)
		}
		if err := wait(); err != nil {
			t.Error(err)
		}
	})
}

// Who has asked for an outage is told if it was shorter, because another replica became the master meanwhile.
func TestDrillOutageThatEndsEarlySaysSo(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		time.Sleep(rested)
		began := time.Now()
		master, wait, err := client.BeginDrill(ctx, operator, client.Drill{Kind: client.DrillOutage, For: api.MaxOutage})
		if err != nil {
			t.Fatal(err)
		}
		c.Isolate(master)
		if err := wait(); !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), "before its time") || time.Since(began) > 5*time.Second {
			t.Errorf("an outage of %v has ended after %v: %v", api.MaxOutage, time.Since(began), err)
		}
	})
}
