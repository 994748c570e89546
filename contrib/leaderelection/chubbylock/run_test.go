package chubbylock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/leaderelection/chubbylock"
	"k8s.io/client-go/tools/leaderelection"
)

// trouble is a failure of the leader.
type trouble struct {
	name string
	make func(w *world, leader *candidate)
	heal func(w *world, leader *candidate)
	// least and most are when the other leads, without the lock-delay; after a
	// mild failure there is no lock-delay.
	least, most time.Duration
	mild        bool
}

func troubles() []trouble {
	const lease = api.DefaultLease
	early := lease * 5 / 12 // the least that may be left of it
	nothing := func(*world, *candidate) {}
	return []trouble{
		{"paused", func(w *world, c *candidate) { w.pause(c.name) }, func(w *world, c *candidate) { w.resume(c.name) }, early, lease + 2*time.Second, false},
		{"cut off", func(w *world, c *candidate) { w.cell.Cut(c.name) }, func(w *world, c *candidate) { w.cell.Heal(c.name) }, early, lease + 2*time.Second, false},
		{"session ended", func(w *world, _ *candidate) {
			w.operate(func(ctx context.Context, c *client.Client, holder api.Holder) error {
				return c.EndSession(ctx, holder.Session, "a drill")
			})
		}, nothing, 0, time.Second, true},
		{"lock broken", func(w *world, _ *candidate) {
			w.operate(func(ctx context.Context, c *client.Client, _ api.Holder) error {
				return c.BreakLock(ctx, path, "a drill", false)
			})
		}, nothing, 0, time.Second, true},
	}
}

// TestTroubles: in every failure of the leader no two candidates act at a time. The other leads
// when lease and lock-delay have ended, and at once if the leader could report that it has stopped.
// Then the first can lead again.
func TestTroubles(t *testing.T) {
	for _, trouble := range troubles() {
		for _, delay := range []time.Duration{0, api.DefaultLockDelay} {
			t.Run(fmt.Sprintf("%s, lock-delay %v", trouble.name, delay), func(t *testing.T) {
				inWorld(t, func(w *world) { w.survives(trouble, delay) })
			})
		}
	}
}

func (w *world) survives(trouble trouble, delay time.Duration) {
	one, two := w.pair(delay)
	first := w.leader(time.Second)
	began := time.Now()
	trouble.make(w, one)
	second := w.leaderOtherThan(one.name, time.Minute)
	least, most := trouble.least+delay, trouble.most+delay
	if trouble.mild {
		least, most = trouble.least, trouble.most
	}
	if took := time.Since(began); second.who != two.name || second.token <= first.token || took < least || took > most {
		w.Errorf("%+v followed %+v after %v, want %v to %v", second, first, took, least, most)
	}
	w.sleep(30 * time.Second)
	trouble.heal(w, one)
	w.sleep(30 * time.Second)
	if now := w.leader(time.Second); now != second {
		w.Errorf("when it was over, %+v leads; %+v did", now, second)
	}
	w.told(one.name, two.name, time.Second)
	two.stop()
	<-two.done
	if third := w.leader(time.Second); third.who != one.name || third.token <= second.token {
		w.Errorf("in the end %+v leads, after %+v", third, second)
	}
}

// leaderOtherThan waits until another acts.
func (w *world) leaderOtherThan(name string, limit time.Duration) act {
	w.Helper()
	for end := time.Now().Add(limit); ; {
		if a := w.leader(time.Until(end)); a.who != name {
			return a
		}
	}
}

// operate does an operator's action on the holder of the lock.
func (w *world) operate(do func(ctx context.Context, c *client.Client, holder api.Holder) error) {
	w.Helper()
	c, err := client.New(w.Context(), w.cell.ConfigOf("operator"))
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close(w.Context())
	locks, err := c.Cell().Locks(w.Context(), path)
	if err != nil || len(locks) != 1 || len(locks[0].Holders) != 1 {
		w.Fatalf("%+v, %v", locks, err)
	}
	if err := do(w.Context(), c, locks[0].Holders[0]); err != nil {
		w.Fatal(err)
	}
}

// TestMasterKilled: the leader continues to lead through fail-overs of the
// cell.
func TestMasterKilled(t *testing.T) {
	inWorld(t, func(w *world) {
		_, two := w.pair(0)
		first := w.leader(time.Second)
		for range 3 {
			killed := w.cell.FailOver()
			w.sleep(20 * time.Second)
			if now := w.leader(time.Second); now != first {
				w.Errorf("%+v leads; %+v did", now, first)
			}
			w.cell.Restart(killed)
			w.sleep(20 * time.Second)
		}
		two.stop()
		<-two.done
	})
}

// TestCleanRelease: a leader that is stopped is replaced at once, and not at a RetryPeriod. Here it
// takes 5 ms to reach the cell, and nothing else takes any time.
func TestCleanRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, name := range []string{"one", "two"} {
			w.cell.Slow(name, 5*time.Millisecond)
		}
		one, two := w.pair(api.DefaultLockDelay)
		for i := range 6 {
			w.sleep(5 * time.Second)
			from, to := []*candidate{one, two}[i%2], []*candidate{two, one}[i%2]
			began := time.Now()
			from.stop()
			if now := w.leaderOtherThan(from.name, time.Minute); now.who != to.name || time.Since(began) > 100*time.Millisecond {
				w.Errorf("%+v leads after %v", now, time.Since(began))
			}
			<-from.done
			again := w.run(fmt.Sprint(from.name, i), api.DefaultLockDelay)
			w.cell.Slow(again.name, 5*time.Millisecond)
			one, two = []*candidate{one, again}[(i+1)%2], []*candidate{again, two}[(i+1)%2]
		}
	})
}

// TestSlowToStop: no candidate leads before the work of the earlier leader has stopped, although its
// context ended long before, with a release or not, and also after RenewDeadline.
func TestSlowToStop(t *testing.T) {
	for _, release := range []bool{true, false} {
		for _, takes := range []time.Duration{3 * time.Second, 30 * time.Second} {
			t.Run(fmt.Sprintf("release %v, %v", release, takes), func(t *testing.T) {
				inWorld(t, func(w *world) {
					var stopped time.Time
					one := w.run("one", 0, func(cfg *leaderelection.LeaderElectionConfig) {
						cfg.ReleaseOnCancel = release
						work := cfg.Callbacks.OnStartedLeading
						cfg.Callbacks.OnStartedLeading = func(ctx context.Context) {
							work(ctx)
							w.sleep(takes)
							stopped = time.Now()
						}
					})
					w.leader(10 * time.Second)
					w.run("two", 0)
					w.sleep(10 * time.Second)
					one.stop()
					next := w.leaderOtherThan("one", time.Minute)
					if late := time.Since(stopped); stopped.IsZero() || late < 0 || late > 100*time.Millisecond {
						w.Errorf("%+v leads %v after the work stopped at %v", next, late, stopped)
					}
					<-one.done
				})
			})
		}
	}
}

// TestManyCandidates: with ten candidates, each leads once, in turn.
func TestManyCandidates(t *testing.T) {
	inWorld(t, func(w *world) {
		all := map[string]*candidate{}
		for i := range 10 {
			c := w.run(fmt.Sprint("c", i), api.DefaultLockDelay)
			all[c.name] = c
		}
		for range 10 {
			now := w.leader(10 * time.Second)
			for name, c := range all {
				if name != now.who {
					w.told(c.name, now.who, 10*time.Second)
				}
			}
			c := all[now.who]
			if c == nil {
				w.Fatalf("%+v leads, and has been stopped", now)
			}
			delete(all, now.who)
			c.stop()
			<-c.done
		}
	})
}

// TestRunRefuses: Run refuses a configuration that cannot work before it does anything.
func TestRunRefuses(t *testing.T) {
	inWorld(t, func(w *world) {
		for name, edit := range map[string]func(*leaderelection.LeaderElectionConfig){
			"another lock":      func(cfg *leaderelection.LeaderElectionConfig) { cfg.Lock = nil },
			"coordinated":       func(cfg *leaderelection.LeaderElectionConfig) { cfg.Coordinated = true },
			"impossible times":  func(cfg *leaderelection.LeaderElectionConfig) { cfg.RetryPeriod = time.Hour },
			"nothing to do":     func(cfg *leaderelection.LeaderElectionConfig) { cfg.Callbacks.OnStartedLeading = nil },
			"nothing at an end": func(cfg *leaderelection.LeaderElectionConfig) { cfg.Callbacks.OnStoppedLeading = nil },
		} {
			cfg := w.config(w.lock("one", 0), w.work("one"))
			edit(&cfg)
			if err := chubbylock.Run(w.Context(), cfg); !errors.Is(err, api.InvalidArgument) {
				w.Errorf("%s: %v", name, err)
			}
		}
		w.run("one", 0)
		w.leader(time.Second)
	})
}
