//go:build linux

package recipe

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

// rounds is how many random rounds the tests of the recipes make that must never let one too many through, or one
// too early. The default takes some seconds under the race detector.
var rounds = flag.Int("rounds", 60, "random rounds of each recipe's test")

type world struct{ *recipetest.World }

// inWorld runs a test with a cell of three replicas.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.Run(t, 3, func(w *recipetest.World) { test(&world{w}) })
}

// inSmallWorld is inWorld with one replica, for a test in which the master goes on.
func inSmallWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.Run(t, 1, func(w *recipetest.World) { test(&world{w}) })
}

// ok returns what a call returns, and ends the test on its error.
func ok[T any](v T, err error) func(*world) T {
	return func(w *world) T {
		w.T.Helper()
		w.OK(err)
		return v
	}
}

// brief returns a context of that length.
func (w *world) brief(d time.Duration) context.Context {
	ctx, cancel := w.Brief(d)
	w.T.Cleanup(cancel)
	return ctx
}

// pass lets virtual time pass.
func pass(d time.Duration) { recipetest.Pass(d) }

// All or nothing: what was taken is released when a later one cannot be had.
func TestAcquireAll(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		const a, b, c = "/ls/local/a", "/ls/local/b", "/ls/local/c"
		all := ok(AcquireAll(w.Ctx, one, []string{c, a}, AllOptions{LockDelay: api.DefaultLockDelay, Shared: []string{b}, Reason: "all"}))(w)
		var paths []string
		for _, seq := range all.Sequencers() {
			paths = append(paths, seq.Path.String()+" "+seq.Mode.String())
			w.OK(two.CheckSequencer(w.Ctx, seq.String()))
		}
		if fmt.Sprint(paths) != "[/ls/local/a exclusive /ls/local/b shared /ls/local/c exclusive]" {
			t.Errorf("%v", paths)
		}
		ctx := w.brief(5 * time.Second)
		wants(t, "until the deadline", second(AcquireAll(ctx, two, []string{"/ls/local/0", c}, AllOptions{LockDelay: api.DefaultLockDelay})), api.DeadlineExceeded)
		w.Succeed()
		ctx = w.brief(5 * time.Second)
		shared := ok(AcquireAll(ctx, two, []string{"/ls/local/0"}, AllOptions{LockDelay: api.DefaultLockDelay, Shared: []string{b}}))(w)
		w.OK(shared.Release(w.Ctx))
		if all.Context().Err() != nil {
			t.Error(context.Cause(all.Context()))
		}
		w.OK(all.Release(w.Ctx))
		w.OK(all.Release(w.Ctx))
		if !errors.Is(context.Cause(all.Context()), client.LockReleased) {
			t.Errorf("after Release: %v", context.Cause(all.Context()))
		}
		for name, paths := range map[string][]string{"none": nil, "twice": {a, b, a}} {
			wants(t, name, second(AcquireAll(w.Ctx, one, paths, AllOptions{LockDelay: api.DefaultLockDelay})), api.InvalidArgument)
		}
		wants(t, "another cell", second(AcquireAll(w.Ctx, one, []string{a, "/ls/elsewhere/b"}, AllOptions{LockDelay: api.DefaultLockDelay})), api.WrongCell)
		all = ok(AcquireAll(w.Ctx, two, []string{a, b, c}, AllOptions{LockDelay: api.DefaultLockDelay}))(w)
		w.OK(one.BreakLock(w.Ctx, b, "a test", false))
		select {
		case <-all.Context().Done():
		case <-time.After(time.Second):
			t.Error("one lock was lost, and the context has not ended")
		}
		wants(t, "Release of what was lost", all.Release(w.Ctx), api.LockLost)
	})
}

// One that is lost while others are waited for ends the wait.
func TestAcquireAllLostOnTheWay(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		last := ok(AcquireAll(w.Ctx, one, []string{"/ls/local/z"}, AllOptions{LockDelay: api.DefaultLockDelay}))(w)
		failed := make(chan error)
		go func() {
			_, err := AcquireAll(w.Ctx, two, []string{"/ls/local/a", "/ls/local/z"}, AllOptions{LockDelay: api.DefaultLockDelay})
			failed <- err
		}()
		pass(time.Second)
		w.OK(one.BreakLock(w.Ctx, "/ls/local/a", "a test", false))
		wants(t, "one was taken away", <-failed, api.LockLost)
		w.OK(last.Release(w.Ctx))
		again := ok(AcquireAll(w.Ctx, two, []string{"/ls/local/a", "/ls/local/z"}, AllOptions{LockDelay: api.DefaultLockDelay}))(w)
		w.OK(again.Release(w.Ctx))
	})
}

// Clients that take sets that overlap, each in an order of its own, never wait for each other for ever,
// though nobody dies or gives up.
func TestAcquireAllNoDeadlock(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		ctx := w.brief(5 * time.Minute)
		var clients sync.WaitGroup
		for i := range 5 {
			c := w.Client(fmt.Sprintf("h%d", i))
			clients.Go(func() {
				for range 10 {
					var paths []string
					for _, n := range rand.Perm(5)[:3] {
						paths = append(paths, fmt.Sprintf("/ls/local/lock-%d", n))
					}
					all, err := AcquireAll(ctx, c, paths, AllOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					pass(rand.N(100 * time.Millisecond))
					if err := all.Release(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
		clients.Wait()
	})
}

// Clients that take sets that overlap exclude each other, whoever dies, gives up or takes over.
func TestAcquireAllRandom(t *testing.T) {
	t.Parallel()
	const locks, clients = 5, 6
	inWorld(t, func(w *world) {
		s := recipetest.NewStorm(w.World, 1, *rounds)
		for i := range clients {
			s.Live(fmt.Sprintf("h%d", i), func(c *client.Client, r *rand.Rand) error {
				var paths []string
				for _, n := range r.Perm(locks)[:1+r.IntN(3)] {
					paths = append(paths, fmt.Sprintf("/ls/local/lock-%d", n))
				}
				ctx := w.Ctx
				if r.IntN(3) == 0 {
					ctx = w.brief(time.Duration(r.IntN(20_000)) * time.Millisecond)
				}
				all, err := AcquireAll(ctx, c, paths, AllOptions{LockDelay: api.DefaultLockDelay, Try: r.IntN(4) == 0})
				if err != nil {
					return err
				}
				var ends []func()
				for _, path := range paths {
					ends = append(ends, s.Model.Begin(path, 1))
				}
				select {
				case <-all.Context().Done():
				case <-time.After(time.Duration(r.IntN(2_000)) * time.Millisecond):
				}
				for _, end := range ends {
					end()
				}
				return all.Release(ctx)
			})
		}
		s.Rage(0, *rounds/2)
	})
}

// With Try nobody waits: all that are free, or none, and who holds the one that is not.
func TestAcquireAllTry(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		const a, b, c = "/ls/local/a", "/ls/local/b", "/ls/local/c"
		held, err := AcquireAll(w.Ctx, one, []string{b}, AllOptions{Reason: "mine"}) // with the default lock-delay
		w.OK(err)
		began := time.Now()
		_, err = AcquireAll(w.Ctx, two, []string{c, b, a}, AllOptions{LockDelay: NoLockDelay, Try: true})
		var refused *api.Error
		if !errors.As(err, &refused) || refused.Code != api.LockHeld || refused.Path != b || len(refused.Holders) != 1 || refused.Holders[0].Session != one.Session() {
			t.Errorf("one is held: %v", err)
		}
		if locks, err := one.Cell().LocksOf(w.Ctx, two.Session()); err != nil || len(locks) != 0 || time.Since(began) > time.Second {
			t.Errorf("after %v it holds %v, %v", time.Since(began), locks, err)
		}
		w.Expire(one.Session())
		pass(time.Second)
		if _, err = AcquireAll(w.Ctx, two, []string{a, b}, AllOptions{LockDelay: NoLockDelay, Try: true}); !errors.Is(err, api.LockDelayed) {
			t.Errorf("one is delayed: %v", err)
		}
		_ = held.Release(w.Ctx) // it was lost
		w.Settle()
		all := ok(AcquireAll(w.Ctx, two, []string{b, a}, AllOptions{LockDelay: NoLockDelay, Try: true}))(w)
		locks := all.Locks()
		if len(locks) != 2 || locks[0].Path() != a || locks[1].Path() != b || locks[0].Err() != nil {
			t.Errorf("the locks: %v", locks)
		}
		w.OK(all.Release(w.Ctx))
	})
}

// Whoever waits for several locks is told which, and those who would wait for each other without end are
// told that.
func TestAcquireAllWaits(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		const a, b = "/ls/local/a", "/ls/local/b"
		job1, job2 := []client.LockOption{client.DetectDeadlock("job1")}, []client.LockOption{client.DetectDeadlock("job2")}
		first := ok(AcquireAll(w.Ctx, one, []string{a}, AllOptions{LockDelay: NoLockDelay, Options: job1}))(w)
		second := ok(AcquireAll(w.Ctx, two, []string{b}, AllOptions{LockDelay: NoLockDelay, Options: job2}))(w)
		waits := make(chan string, 100)
		done := make(chan error, 1)
		go func() {
			all, err := AcquireAll(w.Ctx, one, []string{"/ls/local/0", b}, AllOptions{LockDelay: NoLockDelay, Options: job1, OnQueued: func(path string, q client.Queued) { waits <- path }})
			if err == nil {
				err = all.Release(w.Ctx)
			}
			done <- err
		}()
		if path := <-waits; path != b {
			t.Errorf("it waits for %s", path)
		}
		_, err := AcquireAll(w.Ctx, two, []string{a}, AllOptions{LockDelay: NoLockDelay, Options: job2})
		wants(t, "each waits for the other", err, api.Deadlock)
		w.OK(second.Release(w.Ctx))
		w.OK(<-done)
		w.OK(first.Release(w.Ctx))
	})
}

// What is given back by one whose time is over is given back, also while the cell is away.
func TestReleaseGoesOn(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		lock := NewRWLock(one, "/ls/local/lock", RWLockOptions{LockDelay: api.DefaultLockDelay})
		over, cancel := context.WithCancel(w.Ctx)
		cancel()
		for range 3 {
			l := ok(lock.Lock(w.Ctx))(w)
			w.Cut("h1")
			wants(t, "Release at the end of the context", l.Release(over), api.Uncertain)
			ctx := w.brief(2 * time.Second)
			wants(t, "Release while the cell is away", l.Release(ctx), api.Uncertain)
			w.Heal("h1")
			ctx = w.brief(2 * time.Second)
			other := ok(NewRWLock(two, "/ls/local/lock", RWLockOptions{LockDelay: api.DefaultLockDelay}).Lock(ctx))(w)
			w.OK(other.Release(w.Ctx))
			w.OK(l.Release(w.Ctx))
		}
	})
}

// What a recipe holds is given back at once, also by those whose context has ended, as
// that of a program that got a signal. The session stays open, and frees nothing.
func TestGivenBackWithEndedContext(t *testing.T) {
	t.Parallel()
	const delay = api.DefaultLockDelay
	recipetest.GivesBack(t, map[string]recipetest.Take{
		"permit": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			p, err := NewSemaphore(c, "/ls/local/semaphore", 1).Acquire(w.Ctx, SemaphoreOptions{LockDelay: delay})
			return p.Release, err
		},
		"write lock": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			l, err := NewRWLock(c, "/ls/local/file", RWLockOptions{LockDelay: delay}).Lock(w.Ctx)
			return l.Release, err
		},
		"locks": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			l, err := AcquireAll(w.Ctx, c, []string{"/ls/local/a", "/ls/local/b"}, AllOptions{LockDelay: delay})
			return l.Release, err
		},
		"presence": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			p, err := Announce(w.Ctx, c, "/ls/local/up", "name", nil)
			return p.Withdraw, err
		},
		"publication": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			p, err := Publish(w.Ctx, c, "/ls/local/service", Endpoint{Address: "127.0.0.1:9999"})
			return p.Withdraw, err
		},
		"primary": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			p, err := Campaign(w.Ctx, c, "/ls/local/primary", CampaignOptions{Name: "name", LockDelay: delay})
			return p.Resign, err
		},
	})
}

// What is held says where it is, that it is held, and why it is not any more.
func TestWhatIsHeldSaysSo(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("h1")
		for _, dir := range []string{"sem", "members", "svc"} {
			w.Mkdir(c, "/ls/local/"+dir)
		}
		semaphore := NewSemaphore(c, "/ls/local/sem", 1)
		permit := ok(semaphore.Acquire(w.Ctx, SemaphoreOptions{LockDelay: NoLockDelay}))(w)
		lock := NewRWLock(c, "/ls/local/rw", RWLockOptions{LockDelay: NoLockDelay})
		read := ok(lock.RLock(w.Ctx))(w)
		write := ok(NewRWLock(c, "/ls/local/rw2", RWLockOptions{LockDelay: NoLockDelay}).Lock(w.Ctx))(w)
		primary := ok(Campaign(w.Ctx, c, "/ls/local/primary", CampaignOptions{LockDelay: NoLockDelay}))(w)
		locks := ok(AcquireAll(w.Ctx, c, []string{"/ls/local/a", "/ls/local/b"}, AllOptions{LockDelay: NoLockDelay}))(w)
		presence := ok(Announce(w.Ctx, c, "/ls/local/members", "one", nil))(w)
		publication := ok(Publish(w.Ctx, c, "/ls/local/svc", Endpoint{Address: "one:1"}))(w)
		type held interface {
			Context() context.Context
			Err() error
		}
		all := map[string]held{
			"/ls/local/sem/slot-000": permit, "/ls/local/rw": read, "/ls/local/rw2": write, "/ls/local/primary": primary, "several": locks,
			"/ls/local/members/one": presence, "/ls/local/svc/one:1": publication,
		}
		check := func(ended bool) {
			t.Helper()
			for path, one := range all {
				if err := one.Err(); (err != nil) != ended || ended && !errors.Is(err, api.SessionExpired) {
					t.Errorf("%s: %v; ended %v", path, err, ended)
				}
				if at, ok := one.(interface{ Path() string }); ok != (path != "several") || ok && at.Path() != path {
					t.Errorf("%s: has a path %v", path, ok)
				}
				waits, ok := one.(interface{ Done() <-chan struct{} })
				if !ok {
					t.Errorf("%s: has no Done", path)
					continue
				}
				select {
				case <-waits.Done():
					if !ended {
						t.Errorf("%s is done", path)
					}
				default:
					if ended {
						t.Errorf("%s is not done", path)
					}
				}
			}
		}
		check(false)
		w.Expire(c.Session())
		<-c.Done()
		w.Settle()
		check(true)
	})
}

// A process that was stopped for longer than its lease finds it out by Err itself, before a timer has fired.
func TestErrOfWhatIsHeldReadsTheClock(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("h1")
		locks := ok(AcquireAll(w.Ctx, c, []string{"/ls/local/a", "/ls/local/b"}, AllOptions{LockDelay: NoLockDelay}))(w)
		presence := ok(Announce(w.Ctx, c, "/ls/local/members", "one", nil))(w)
		w.Jump("h1", api.DefaultLease+api.DefaultGrace)
		if locks.Err() == nil || presence.Err() == nil {
			t.Errorf("%v, %v", locks.Err(), presence.Err())
		}
	})
}

// wants checks the error of a call, or that it has no error (nil).
func wants(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v; want %v", what, err, want)
	}
}
