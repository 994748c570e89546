//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

const revocable = "/ls/local/revocable"

// revocableOf acquires the lock in the background, and returns what becomes of it.
func (w *world) revocableOf(c *client.Client, o RevocableOptions) (got chan *Revocable) {
	got = make(chan *Revocable, 1)
	go func() {
		r, err := AcquireRevocable(w.Ctx, c, revocable, o)
		if err != nil {
			w.T.Error(err)
		}
		got <- r
	}()
	return got
}

// Whoever asks for a lock says for what, and the holder's work goes on for as long as its notice, and no longer.
func TestHolderLetsGoWhenItIsAsked(t *testing.T) {
	t.Parallel()
	const notice = 20 * time.Second
	inSmallWorld(t, func(w *world) {
		one, two, three := w.Client("one"), w.Client("two"), w.Client("three")
		first := <-w.revocableOf(one, RevocableOptions{LockDelay: NoLockDelay, Notice: notice})
		pass(10 * time.Minute)
		if err := context.Cause(first.Context()); err != nil || first.AskedFor() != "" {
			t.Errorf("nobody has asked, and it ended with %v, asked for %q", err, first.AskedFor())
		}
		select {
		case <-first.Asked():
			t.Error("it was asked by nobody")
		default:
		}
		second := w.revocableOf(two, RevocableOptions{LockDelay: NoLockDelay, Notice: notice, Reason: "month's end", Insist: true})
		pass(time.Second)
		third := w.revocableOf(three, RevocableOptions{LockDelay: NoLockDelay, Reason: "backup", Insist: true})
		for i, one := range []struct {
			held   *Revocable
			wanted string
		}{{first, "month's end"}, {nil, "backup"}} {
			r := one.held
			if r == nil {
				r = <-second
			}
			select {
			case <-r.Asked():
			case <-time.After(time.Second):
				t.Fatalf("holder %d was not asked", i)
			}
			began := time.Now()
			<-r.Done()
			if took := time.Since(began); took < notice-2*time.Second || took > notice {
				t.Errorf("holder %d: its work ended %v after it was asked; want %v", i, took, notice)
			}
			cause := context.Cause(r.Context())
			if r.AskedFor() != one.wanted || api.CodeOf(cause) != api.Cancelled || r.Err() != nil {
				t.Errorf("holder %d was asked for %q, %v; the lock: %v", i, r.AskedFor(), cause, r.Err())
			}
			select {
			case <-third:
				t.Fatal("the lock was taken away before it was released")
			case <-time.After(time.Second):
			}
			w.OK(r.Release(w.Ctx))
		}
		last := <-third
		if last.AskedFor() != "" || last.Context().Err() != nil {
			t.Errorf("nobody waits, and it was asked for %q: %v", last.AskedFor(), context.Cause(last.Context()))
		}
		w.OK(last.Release(w.Ctx))
		if cause := context.Cause(last.Context()); !errors.Is(cause, client.LockReleased) {
			t.Errorf("after its release it ended with %v", cause)
		}
	})
}

// A request that came to a new master before the holder was heard there is told, with its reason.
func TestRequestDuringFailOverIsTold(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one := w.Client("holder", func(cfg *client.Config) { cfg.Lease = 30 * time.Second })
		two := w.Client("two")
		r := <-w.revocableOf(one, RevocableOptions{LockDelay: NoLockDelay, Notice: time.Second})
		w.Cut("holder")
		w.FailOver()
		next := w.revocableOf(two, RevocableOptions{LockDelay: NoLockDelay, Reason: "an upgrade", Insist: true})
		pass(5 * time.Second)
		w.Heal("holder")
		select {
		case <-r.Done():
			if r.AskedFor() != "an upgrade" || r.Err() != nil {
				t.Errorf("asked for %q; the lock: %v", r.AskedFor(), r.Err())
			}
		case <-time.After(time.Minute):
			t.Error("the request was not told")
		}
		w.OK(r.Release(w.Ctx))
		w.OK((<-next).Release(w.Ctx))
	})
}

// Work that can be put off does not end work of its like, and both end for work that cannot.
func TestRevocablesDoNotAskEachOther(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		first := <-w.revocableOf(w.Client("one"), RevocableOptions{LockDelay: NoLockDelay})
		second := w.revocableOf(w.Client("two"), RevocableOptions{LockDelay: NoLockDelay, Reason: "of its like"})
		pass(10 * time.Minute)
		if cause := context.Cause(first.Context()); cause != nil {
			t.Fatalf("one that waits for the lock has ended the work: %v", cause)
		}
		c := w.Client("three")
		restored := make(chan error, 1)
		go func() {
			restored <- c.Do(w.Ctx, revocable, func(context.Context, *client.Lock) error { return nil }, client.Reason("a restore"))
		}()
		for i, r := range []*Revocable{first, nil} {
			if r == nil {
				r = <-second // it came before
			}
			select {
			case <-r.Done():
			case <-time.After(time.Minute):
				t.Fatalf("holder %d was not asked", i)
			}
			if r.AskedFor() != "a restore" {
				t.Errorf("holder %d was asked for %q", i, r.AskedFor())
			}
			w.OK(r.Release(w.Ctx))
		}
		w.OK(<-restored)
	})
}

// A lock that is lost ends the work at once, whatever the notice.
func TestRevocableLockThatIsLost(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		r := <-w.revocableOf(w.Client("one"), RevocableOptions{LockDelay: NoLockDelay, Notice: time.Hour})
		next := w.revocableOf(w.Client("two"), RevocableOptions{LockDelay: NoLockDelay, Insist: true})
		<-r.Asked()
		w.Cut("one")
		began := time.Now()
		<-r.Done()
		if took := time.Since(began); took > 30*time.Second || r.Err() == nil {
			t.Errorf("the work ended after %v, with the lock %v", took, r.Err())
		}
		_ = r.Release(w.Ctx) // it says that the lock was lost
		w.OK((<-next).Release(w.Ctx))
		if _, err := AcquireRevocable(w.Ctx, w.Client("three"), revocable, RevocableOptions{LockDelay: NoLockDelay, Notice: -1}); api.CodeOf(err) != api.InvalidArgument {
			t.Error(err)
		}
	})
}

const rwPath = "/ls/local/rw"

// Readers share, a writer excludes, and nobody overtakes a writer who came earlier.
func TestRWLock(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		a, b := NewRWLock(one, rwPath, RWLockOptions{LockDelay: api.DefaultLockDelay}), NewRWLock(two, rwPath, RWLockOptions{LockDelay: api.DefaultLockDelay})
		first := ok(a.RLock(w.Ctx))(w)
		second, err := a.RLock(w.Ctx) // another of the same client
		w.OK(err)
		third := ok(b.TryRLock(w.Ctx))(w)
		if _, err := b.TryLock(w.Ctx); !errors.Is(err, api.LockHeld) {
			t.Errorf("a writer beside readers: %v", err)
		}
		w.Succeed()
		var mu sync.Mutex // guards order
		var order []string
		var all sync.WaitGroup
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		all.Go(func() {
			l, err := b.Lock(w.Ctx, client.Reason("a writer"))
			if err != nil {
				t.Error(err)
				return
			}
			note("writer")
			pass(time.Second)
			_ = l.Release(w.Ctx)
		})
		pass(time.Second)
		all.Go(func() {
			l, err := a.RLock(w.Ctx)
			if err != nil {
				t.Error(err)
				return
			}
			note("reader")
			_ = l.Release(w.Ctx)
		})
		pass(time.Second)
		w.OK(first.Release(w.Ctx))
		w.OK(second.Release(w.Ctx))
		w.OK(third.Release(w.Ctx))
		all.Wait()
		if fmt.Sprint(order) != "[writer reader]" {
			t.Errorf("the order is %v", order)
		}
	})
}

// A writer never meets anybody, whoever dies, gives up or takes over.
func TestRWLockRandom(t *testing.T) {
	t.Parallel()
	const clients = 6
	inWorld(t, func(w *world) {
		s := recipetest.NewStorm(w.World, clients, *rounds/2)
		for i := range clients {
			s.Live(fmt.Sprintf("h%d", i), func(c *client.Client, r *rand.Rand) error {
				ctx := w.brief(time.Duration(r.IntN(40_000)) * time.Millisecond)
				lock := NewRWLock(c, rwPath, RWLockOptions{LockDelay: api.DefaultLockDelay})
				if r.IntN(3) > 0 {
					l, err := lock.RLock(ctx)
					if err != nil {
						return err
					}
					s.Hold(l.Context(), r, "the lock", 1)
					return l.Release(ctx)
				}
				l, err := lock.Lock(ctx)
				if err != nil {
					return err
				}
				s.Hold(l.Context(), r, "the lock", clients)
				return l.Release(ctx)
			})
		}
		s.Rage(0, *rounds/8)
	})
}

// A Lock whose context ends before its file is open fails with DeadlineExceeded, not with Uncertain: the lock is not held.
func TestRWLockCutOff(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		lock := NewRWLock(w.Client("h1"), "/ls/local/rw", RWLockOptions{LockDelay: NoLockDelay})
		w.Cut("h1")
		defer w.Heal("h1")
		brief := w.brief(time.Second)
		for _, err := range []error{second(lock.Lock(brief)), second(lock.TryRLock(brief))} {
			if !errors.Is(err, api.DeadlineExceeded) || api.CodeOf(err) != api.DeadlineExceeded {
				t.Error(err)
			}
		}
	})
}

// Files that come and go faster than they can be read do not keep a tree from being whole, nor from being fresh.
func TestTreeOfWhatComesAndGoes(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("writer")
		w.Mkdir(c, treeDir)
		w.Put(c, treeDir+"/stays", "1")
		over, churned := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(churned)
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				case <-time.After(20 * time.Millisecond):
				}
				if _, err := c.Put(w.Ctx, fmt.Sprint(treeDir, "/", n), nil); err != nil {
					t.Error(err)
				}
				if n >= 20 {
					if err := c.Delete(w.Ctx, fmt.Sprint(treeDir, "/", n-20)); err != nil {
						t.Error(err)
					}
				}
			}
		}()
		w.Slow("h1", 150*time.Millisecond)
		cfg := w.ConfigOf("h1")
		cfg.NoCache = true // nobody waits for the slow host
		ctx := w.brief(30 * time.Second)
		tree, err := WatchTree(ctx, cfg, treeDir, TreeOptions{})
		if err == nil {
			fresh := false
			for range 1000 {
				changed := tree.Changed()
				fresh = fresh || tree.Fresh()
				if fresh {
					break
				}
				<-changed
			}
			if !fresh {
				t.Error("it is never fresh")
			}
			tree.Close()
		}
		close(over)
		<-churned
		w.OK(err)
	})
}

// Who followed a directory writes nothing once another follows it: that is waited for.
func TestTreeWaitsForWhoIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tree := newTree(treeDir, TreeOptions{})
		old := newLimb(tree, nil, nil, treeDir+"/d", nil)
		stopped := make(chan struct{})
		old.stop = func() { close(stopped) }
		go func() {
			<-stopped
			time.Sleep(time.Second) // what it was at
			old.seen()
			old.heard()
			close(old.done)
		}()
		endLimbs([]*limb{old})
		<-old.done
		if n := len(tree.behind); n != 0 {
			t.Errorf("%d directories are behind, and nobody follows them", n)
		}
	})
}

// Close returns after the session that kept the tree up to date has ended.
func TestCloseEndsTheSession(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("writer")
		w.Mkdir(c, treeDir)
		w.Put(c, treeDir+"/n", "1")
		w.Slow("h1", 100*time.Millisecond)
		tree := ok(WatchTree(w.Ctx, w.ConfigOf("h1"), treeDir, TreeOptions{}))(w)
		file := ok(WatchConfig(w.Ctx, w.ConfigOf("h1"), treeDir+"/n", number, ConfigFileOptions[int]{}))(w)
		for n, one := range []interface{ Close() }{tree, file} {
			one.Close()
			if list, err := c.Cell().Sessions(w.Ctx); err != nil || len(list) != 2-n {
				t.Errorf("%d sessions, %v", len(list), err)
			}
		}
	})
}
