package cell_test

import (
	"context"
	"errors"
	"slices"
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

// rested is long after an election.
const rested = 11 * time.Second

// beginOutage has an operator leave the cell without a master, and returns when it has none; wait waits for the answer.
func beginOutage(t *testing.T, ctx context.Context, c *celltest.Cell, operator *client.Client, length time.Duration) (before string, wait func() error) {
	t.Helper()
	before = c.Master()
	answer := make(chan error, 1)
	go func() {
		_, err := client.TransferWith(ctx, operator, client.TransferOptions{Silent: true, Vacant: length, Why: "because"})
		answer <- err
	}()
	for c.Replica(before).Health().Ready {
		select {
		case err := <-answer:
			t.Fatal("no outage:", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return before, func() error { return <-answer }
}

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

// An outage lasts as long as was asked for, and ends by itself with another master, of a later epoch; the one that gave up is a replica.
// A client sees it as an outage: its calls wait, its session is in jeopardy and then safe, and its lock, which has a lock-delay that
// outlasts it, is kept.
func TestOutage(t *testing.T) {
	const length = 20 * time.Second
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		time.Sleep(rested)
		w := newWitness(t, ctx, c, client.Config{})
		epoch := c.Replica(c.Master()).Health().Epoch
		before, wait := beginOutage(t, ctx, c, operator, length)
		time.Sleep(length - time.Second)
		failIf(t, c.Replica(before).Health().Ready, "a second before its end the outage is over")
		s, err := operator.Cell().Status(ctx)
		stopIf(t, err != nil || s.Master != "" || len(s.Acts) != 1, "in the outage: %+v, %v", s, err)
		failIf(t, s.Acts[0].Kind != "outage" || s.Acts[0].SinceUnix == 0, "the outage is shown as %+v", s.Acts[0])
		report(t, wait())
		time.Sleep(5 * time.Second)
		if after := c.Replica(c.Master()).Health(); after.Epoch <= epoch || after.Replica == before {
			t.Errorf("%s in epoch %d before, and then %+v", before, epoch, after)
		}
		if h := c.Replica(before).Health(); h.Role != "replica" || !h.Ready {
			t.Errorf("the master that gave up: %+v", h)
		}
		s, err = operator.Cell().Status(ctx)
		failIf(t, err != nil || len(s.Acts) > 0, "afterwards: %+v, %v", s, err)
		longest, states, err := w.end()
		failIf(t, err != nil || w.lock.Err() != nil, "the work: %v; the lock: %v", err, w.lock.Err())
		failIf(t, longest < length-time.Second || longest > length+3*time.Second, "for a client an outage of %v was one of %v", length, longest)
		failIf(t, !slices.Equal(states, []session.State{session.Jeopardy, session.Safe}), "the session was %v", states)
	})
}

// The end of the call ends the outage at once: the operator cancels it, or is gone.
func TestOutageEndsWithItsCaller(t *testing.T) {
	for _, how := range []string{"cancelled", "killed"} {
		t.Run(how, func(t *testing.T) {
			inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
				time.Sleep(rested)
				w := newWitness(t, ctx, c, client.Config{})
				during, end := context.WithCancel(ctx)
				defer end()
				_, wait := beginOutage(t, during, c, operator, api.MaxOutage)
				time.Sleep(3 * time.Second)
				if how == "cancelled" {
					end()
					if err := wait(); !errors.Is(err, context.Canceled) {
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
func TestOutageEndsWithItsCertificate(t *testing.T) {
	inTLSCell(t, 3, func(t *testing.T, ctx context.Context, c tlsCell) {
		files := c.clients.client("ops")
		operator := dial(t, ctx, c.Cell, "operator", client.Config{TLS: files, NoCache: true})
		time.Sleep(rested)
		began := time.Now()
		before, _ := beginOutage(t, ctx, c.Cell, operator, api.MaxOutage)
		c.clients.revoke(c.crl, files.Cert)
		for !c.Replica(before).Health().Ready {
			time.Sleep(100 * time.Millisecond) // virtual
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("an outage whose operator's certificate was revoked after its beginning lasted %v", took)
		}
	}, func(cfg *cell.Config) { cfg.Operators = []string{"ops"} })
}

// An outage is for operators, has a bounded length, and takes another replica; during one there is no other.
func TestOutagesAreRefused(t *testing.T) {
	vacate := func(ctx context.Context, by *client.Client, length time.Duration) error {
		_, err := client.TransferWith(ctx, by, client.TransferOptions{Silent: true, Vacant: length})
		return err
	}
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		root, other, eve := as(t, ctx, c, "root"), as(t, ctx, c, "root"), as(t, ctx, c, "eve")
		for _, length := range []time.Duration{0, time.Second, api.MaxOutage + 1} {
			if err := vacate(ctx, eve, length); !errors.Is(err, api.PermissionDenied) {
				t.Errorf("a stranger's outage of %v: %v", length, err)
			}
		}
		for _, length := range []time.Duration{-1, api.MaxOutage + 1} {
			if err := vacate(ctx, root, length); !errors.Is(err, api.InvalidArgument) {
				t.Errorf("an outage of %v: %v", length, err)
			}
		}
		if _, err := client.TransferWith(ctx, root, client.TransferOptions{Why: strings.Repeat("x", api.MaxReason+1)}); !errors.Is(err, api.InvalidArgument) {
			t.Error("a reason that is too long:", err)
		}
		_, wait := beginOutage(t, ctx, c, root, 10*time.Second)
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if err := vacate(short, other, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("a second outage:", err)
		}
		report(t, wait())
	}, func(cfg *cell.Config) { cfg.Operators = []string{"root"} })
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		fails(t, vacate(ctx, dial(t, ctx, c, "root", client.Config{}), time.Second), api.InvalidArgument, "of a cell of one")
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
		noErr(t, cl.CheckSequencer(ctx, lock.Sequencer().String()))
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

// Another replica that becomes the master ends an outage, also for those who asked for it; they do not ask the new one for it again.
func TestOutageEndsWhenAnotherIsElected(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		time.Sleep(rested)
		began := time.Now()
		before, wait := beginOutage(t, ctx, c, operator, api.MaxOutage)
		c.Isolate(before)
		if err := wait(); err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("an outage of %v has ended after %v: %v", api.MaxOutage, time.Since(began), err)
		}
		time.Sleep(2 * time.Second)
		if h := c.Replica(c.Master()).Health(); !h.Ready {
			t.Errorf("a second outage: %+v", h)
		}
	})
}
