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
		{"paused", func(w *world, c *candidate) { w.Pause(c.name) }, func(w *world, c *candidate) { w.Resume(c.name) }, early, lease + 2*time.Second, false},
		{"cut off", func(w *world, c *candidate) { w.Cell.Cut(c.name) }, func(w *world, c *candidate) { w.Cell.Heal(c.name) }, early, lease + 2*time.Second, false},
		{"session ended", func(w *world, _ *candidate) {
			w.Operate(func(ctx context.Context, c *client.Client, holder api.Holder) error {
				return c.EndSession(ctx, holder.Session, "a drill")
			})
		}, nothing, 0, time.Second, true},
		{"lock broken", func(w *world, _ *candidate) {
			w.Operate(func(ctx context.Context, c *client.Client, _ api.Holder) error {
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
	first := w.Leader("", time.Second)
	began := time.Now()
	trouble.make(w, one)
	second := w.Leader(one.name, time.Minute)
	least, most := trouble.least+delay, trouble.most+delay
	if trouble.mild {
		least, most = trouble.least, trouble.most
	}
	if took := time.Since(began); second.Who != two.name || second.Token <= first.Token || took < least || took > most {
		w.Errorf("%+v followed %+v after %v, want %v to %v", second, first, took, least, most)
	}
	w.Sleep(30 * time.Second)
	trouble.heal(w, one)
	w.Sleep(30 * time.Second)
	if now := w.Leader("", time.Second); now != second {
		w.Errorf("when it was over, %+v leads; %+v did", now, second)
	}
	w.told(one.name, two.name, time.Second)
	two.stop()
	<-two.done
	if third := w.Leader("", time.Second); third.Who != one.name || third.Token <= second.Token {
		w.Errorf("in the end %+v leads, after %+v", third, second)
	}
}

// TestMasterKilled: the leader continues to lead through fail-overs of the
// cell.
func TestMasterKilled(t *testing.T) {
	inWorld(t, func(w *world) {
		_, two := w.pair(0)
		first := w.Leader("", time.Second)
		for range 3 {
			killed := w.Cell.FailOver()
			w.Sleep(20 * time.Second)
			if now := w.Leader("", time.Second); now != first {
				w.Errorf("%+v leads; %+v did", now, first)
			}
			w.Cell.Restart(killed)
			w.Sleep(20 * time.Second)
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
			w.Cell.Slow(name, 5*time.Millisecond)
		}
		one, two := w.pair(api.DefaultLockDelay)
		for i := range 6 {
			w.Sleep(5 * time.Second)
			from, to := []*candidate{one, two}[i%2], []*candidate{two, one}[i%2]
			began := time.Now()
			from.stop()
			if now := w.Leader(from.name, time.Minute); now.Who != to.name || time.Since(began) > 100*time.Millisecond {
				w.Errorf("%+v leads after %v", now, time.Since(began))
			}
			<-from.done
			again := w.run(fmt.Sprint(from.name, i), api.DefaultLockDelay)
			w.Cell.Slow(again.name, 5*time.Millisecond)
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
							w.Sleep(takes)
							stopped = time.Now()
						}
					})
					w.Leader("", 10*time.Second)
					w.run("two", 0)
					w.Sleep(10 * time.Second)
					one.stop()
					next := w.Leader("one", time.Minute)
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
			now := w.Leader("", 10*time.Second)
			for name, c := range all {
				if name != now.Who {
					w.told(c.name, now.Who, 10*time.Second)
				}
			}
			c := all[now.Who]
			if c == nil {
				w.Fatalf("%+v leads, and has been stopped", now)
			}
			delete(all, now.Who)
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
		w.Leader("", time.Second)
	})
}
