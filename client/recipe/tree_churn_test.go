//go:build linux

package recipe

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

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
		ctx, cancel := w.Brief(30 * time.Second)
		defer cancel()
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
		tree, err := WatchTree(w.Ctx, w.ConfigOf("h1"), treeDir, TreeOptions{})
		w.OK(err)
		file, err := WatchConfig(w.Ctx, w.ConfigOf("h1"), treeDir+"/n", number, ConfigFileOptions[int]{})
		w.OK(err)
		for n, one := range []interface{ Close() }{tree, file} {
			one.Close()
			if list, err := c.Cell().Sessions(w.Ctx); err != nil || len(list) != 2-n {
				t.Errorf("%d sessions, %v", len(list), err)
			}
		}
	})
}
