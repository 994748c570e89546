package chubbycron_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	chubbycron "github.com/chubbylock/chubby/contrib/gocron"
	"github.com/go-co-op/gocron/v2"
)

// What gocron's own test of distributed schedulers asks for: of three that have the same job at the same moment, one runs
// it; all of them do if the job has no locker.
func TestDistributed(t *testing.T) {
	for what, row := range map[string]struct {
		scheduler func(w *world, host string) []gocron.SchedulerOption
		job       func(w *world, host string) []gocron.JobOption
		want      int
	}{
		"elector": {func(w *world, host string) []gocron.SchedulerOption { return w.elector(host).Options() }, nil, 1},
		"locker": {func(w *world, host string) []gocron.SchedulerOption {
			return []gocron.SchedulerOption{gocron.WithDistributedLocker(w.locker(host))}
		}, nil, 1},
		"locker of the job": {nil, func(w *world, host string) []gocron.JobOption {
			return []gocron.JobOption{gocron.WithDistributedJobLocker(w.locker(host))}
		}, 1},
		"locker that the job has not": {func(w *world, host string) []gocron.SchedulerOption {
			return []gocron.SchedulerOption{gocron.WithDistributedLocker(w.locker(host))}
		}, func(*world, string) []gocron.JobOption {
			return []gocron.JobOption{gocron.WithDisabledDistributedJobLocker(true)}
		}, 3},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				ran := make(chan string, 10)
				for _, host := range []string{"one", "two", "three"} {
					var options []gocron.SchedulerOption
					if row.scheduler != nil {
						options = row.scheduler(w, host)
					}
					job := []gocron.JobOption{gocron.WithName("job")}
					if row.job != nil {
						job = append(job, row.job(w, host)...)
					}
					w.job(w.scheduler(options...), gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(time.Now().Add(5*time.Second))), func() {
						ran <- host
					}, job...)
				}
				w.sleep(10 * time.Second)
				if n := len(ran); n != row.want {
					t.Errorf("the job ran %d times; want %d", n, row.want)
				}
			})
		})
	}
}

// The clocks of hosts differ, by less than the half of AtLeast, and the work is short. Each run is done once.
func TestClocksDiffer(t *testing.T) {
	inWorld(t, func(w *world) {
		const every, rounds = 10 * time.Second, 10
		start := time.Now().Add(every)
		for i, host := range []string{"one", "two", "three"} {
			off := time.Duration(i) * 900 * time.Millisecond // 1.8 s at most
			s := w.scheduler(gocron.WithDistributedLocker(w.locker(host)))
			w.job(s, gocron.DurationJob(every), func() { w.work(context.Background(), host, 10*time.Millisecond) },
				gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartDateTime(start.Add(off))))
		}
		w.sleep(every*rounds + every/2)
		times := map[time.Duration]int{}
		for _, one := range w.done() {
			times[one.at.Sub(start).Truncate(every)]++
		}
		for at, n := range times {
			if n != 1 {
				t.Errorf("the run at %v was done %d times", at, n)
			}
		}
		if len(times) != rounds {
			t.Errorf("%d runs were done; want %d", len(times), rounds)
		}
	})
}

// Schedulers that were started apart run the job of an interval at different times. It is done once in each interval if AtLeast is
// nearly the interval; if AtLeast is short, each scheduler does it.
func TestIntervalsOfSchedulersStartedApart(t *testing.T) {
	const every, apart, rounds = 20 * time.Second, 7 * time.Second, 6
	for atLeast, want := range map[time.Duration]int{every - time.Second: rounds, every / 5: 3 * rounds} {
		t.Run(atLeast.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				for _, host := range []string{"one", "two", "three"} {
					s := w.scheduler(gocron.WithDistributedLocker(w.locker(host, func(cfg *chubbycron.LockerConfig) { cfg.AtLeast = atLeast })))
					task := func() { w.work(context.Background(), host, 10*time.Millisecond) }
					w.job(s, gocron.DurationJob(every), task, gocron.WithName("report"))
					w.sleep(apart)
				}
				before := len(w.done())
				w.sleep(every * rounds)
				if n := len(w.done()) - before; n != want {
					t.Errorf("in %d intervals the job was done %d times; want %d", rounds, n, want)
				}
			})
		})
	}
}

// Lock answers at once, whatever there is; names have locks of their own.
func TestLock(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.locker("one"), w.locker("two")
		l, err := one.Lock(w.ctx, "job")
		wants(t, "Lock", err, api.OK)
		at := time.Now()
		_, err = two.Lock(w.ctx, "job")
		wants(t, "Lock by another", err, api.LockHeld)
		_, err = one.Lock(w.ctx, "job")
		wants(t, "Lock again", err, api.LockHeld)
		if took := time.Since(at); took > time.Second {
			t.Errorf("the refusals took %v", took)
		}
		for _, name := range []string{"", ".", "..", "a/b", "a%2Fb", "Job", "ü", "a\x00", strings.Repeat("x", 400), strings.Repeat("x", 401), strings.Repeat("x", 255)} {
			other, err := two.Lock(w.ctx, name)
			wants(t, fmt.Sprintf("Lock of %q", name), err, api.OK)
			if err == nil {
				defer func() { wants(t, "Unlock", other.Unlock(w.ctx), api.OK) }()
			}
		}

		w.sleep(time.Second)
		wants(t, "Unlock", l.Unlock(w.ctx), api.OK)
		_, err = two.Lock(w.ctx, "job")
		wants(t, "Lock of what is kept", err, api.LockHeld)
		w.sleep(3500 * time.Millisecond) // AtLeast has passed
		l, err = two.Lock(w.ctx, "job")
		wants(t, "Lock after AtLeast", err, api.OK)
		w.sleep(5 * time.Second)
		ended, cancel := context.WithCancel(w.ctx)
		cancel()
		wants(t, "Unlock with a context that has ended", l.Unlock(ended), api.OK)
		l, err = one.Lock(w.ctx, "job")
		wants(t, "Lock at once after long work", err, api.OK)

		w.cell.Cut("one")
		w.sleep(4 * time.Second) // the lease has ended, the lock-delay has not
		_, err = two.Lock(w.ctx, "job")
		wants(t, "Lock in the lock-delay", err, api.LockDelayed)
		at = time.Now()
		if _, err = one.Lock(w.ctx, "other"); err == nil || time.Since(at) > 2*time.Second {
			t.Errorf("Lock without a master: %v after %v; want the half of AtLeast, 2 s", err, time.Since(at))
		}
		w.sleep(4 * time.Second)
		kept, err := two.Lock(w.ctx, "job")
		wants(t, "Lock after the lock-delay", err, api.OK)
		w.cell.Heal("one")
		if err := l.Unlock(w.ctx); !errors.Is(err, api.LockLost) && !errors.Is(err, api.SessionExpired) {
			t.Errorf("Unlock of a lock that was lost: %v", err)
		}
		wants(t, "Unlock", kept.Unlock(w.ctx), api.OK)
		at = time.Now()
		wants(t, "Close", two.Close(w.ctx), api.OK)
		if took := time.Since(at); took < 3*time.Second {
			t.Errorf("Close has given up a lock after %v; want AtLeast", took)
		}
	})
}

// The session is lost when the directory of the locks has been made, which is not undone: Lock goes on in another session.
func TestLockOutlivesASession(t *testing.T) {
	inWorld(t, func(w *world) {
		var session api.SessionID
		var closed atomic.Int64
		keeper := w.keeper("one", func(c *client.Config) {
			c.Dialer = w.cell.Lossy("one", func(method string) bool {
				if strings.HasSuffix(method, "/Close") && closed.Add(1) == 2 { // of the two directories, and the lock's file is next
					w.cell.Expire(session)
				}
				return false
			})
		})
		wants(t, "Do", keeper.Do(w.ctx, func(c *client.Client) error { session = c.Session(); return nil }), api.OK)
		k, err := chubbycron.NewLocker(keeper, chubbycron.LockerConfig{Path: locksPath, AtLeast: 4 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		l, err := k.Lock(w.ctx, "job")
		if err != nil {
			t.Fatal(err)
		}
		wants(t, "Do", keeper.Do(w.ctx, func(c *client.Client) error {
			if c.Session() == session {
				t.Error("the session was not lost")
			}
			return nil
		}), api.OK)
		wants(t, "Unlock", l.Unlock(w.ctx), api.OK)
		wants(t, "Close", k.Close(w.ctx), api.OK)
	})
}

// The context of a run ends when its lock may not be relied on any more.
func TestLockerTask(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.locker("one"), w.locker("two")
		s := w.scheduler(gocron.WithDistributedLocker(one))
		began, stopped := make(chan struct{}), make(chan error, 1)
		w.job(s, gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), one.Task(func(ctx context.Context) error {
			close(began)
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return nil
		}), gocron.WithName("job"))
		<-began
		w.cell.Cut("one")
		for at := time.Now(); ; w.sleep(10 * time.Millisecond) {
			if l, err := two.Lock(w.ctx, "job"); err == nil {
				wants(t, "Unlock", l.Unlock(w.ctx), api.OK)
				break
			}
			if time.Since(at) > time.Minute {
				t.Fatal("nobody gets the lock")
			}
		}
		select {
		case cause := <-stopped:
			if !errors.Is(cause, client.LeaseNearEnd) && !errors.Is(cause, api.SessionExpired) {
				t.Errorf("the work was stopped because: %v", cause)
			}
		default:
			t.Error("another has the lock, and the work was not stopped")
		}
		w.cell.Heal("one")
		ran := false
		wants(t, "a task without a lock", two.Task(func(context.Context) error { ran = true; return nil })(w.ctx), api.OK)
		if !ran {
			t.Error("it did not run")
		}
	})
}
