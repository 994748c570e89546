//go:build linux

package recipe

import (
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
		_, err = b.TryLock(w.Ctx)
		wants(t, "a writer beside readers", err, api.LockHeld)
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
		tree, err := WatchTree(w.brief(30*time.Second), cfg, treeDir, TreeOptions{})
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
			old.settled()
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
