//go:build linux

package recipe

import (
	"fmt"
	"testing"
	"time"
)

// Files that come and go faster than they can be read do not keep a tree from being whole, nor from being fresh.
func TestTreeOfWhatComesAndGoes(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.dial("writer")
		w.mkdir(c, treeDir)
		w.put(c, treeDir+"/stays", "1")
		over, churned := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(churned)
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				case <-time.After(20 * time.Millisecond):
				}
				if _, err := c.Put(w.ctx, fmt.Sprint(treeDir, "/", n), nil); err != nil {
					t.Error(err)
				}
				if n >= 20 {
					if err := c.Delete(w.ctx, fmt.Sprint(treeDir, "/", n-20)); err != nil {
						t.Error(err)
					}
				}
			}
		}()
		w.Slow("h1", 150*time.Millisecond)
		cfg := w.config("h1")
		cfg.NoCache = true // nobody waits for the slow host
		ctx, cancel := w.brief(30 * time.Second)
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
		w.ok(err)
	})
}
