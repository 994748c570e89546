//go:build linux

package recipe

import (
	"context"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// The end of a node is told also to a session for which more events wait than are kept: an announcement
// is made again, and who follows a file follows the one that took its place.
func TestEndOfANodeAmongTooManyEvents(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		// Caches would have the changes below wait for the host that is cut off.
		open := func(host string) *client.Client {
			cfg := w.config(host)
			cfg.NoCache, cfg.Lease = true, api.MaxLease
			c, err := client.New(w.ctx, cfg)
			w.ok(err)
			w.t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = c.Close(ctx) // it may be cut off
			})
			return c
		}
		a, operator := open("a"), open("operator")
		p, err := Announce(w.ctx, a, up, "a", []byte("1"))
		w.ok(err)
		const busy, followed = "/ls/local/busy", "/ls/local/followed"
		w.put(operator, busy, "0")
		w.put(operator, followed, "old")
		watched, err := a.Open(w.ctx, busy, client.OpenOptions{Read: true, Events: []api.EventKind{api.EventContentsModified}})
		w.ok(err)
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		values := make(chan string, 10)
		go func() {
			defer close(values)
			for s, err := range follow(ctx, a, followed, client.OpenOptions{Read: true, Events: []api.EventKind{api.EventContentsModified}}) {
				if err != nil || s.Handle == nil {
					continue
				}
				if text, _, err := s.Contents(ctx); err == nil {
					values <- string(text)
				}
			}
		}()
		w.sleep(time.Second)

		w.Cut("a")
		h, err := operator.Open(w.ctx, busy, client.OpenOptions{Write: true})
		w.ok(err)
		for range api.MaxEventQueue + 1 {
			_, err := h.SetContents(w.ctx, []byte("1"))
			w.ok(err)
		}
		w.rm(operator, up+"/a")
		w.rm(operator, followed)
		w.put(operator, followed, "new")
		w.Heal("a")
		w.settle()

		list, err := Members(w.ctx, operator, up)
		w.ok(err)
		if names(list) != "a=1" {
			t.Errorf("announced: %q", names(list))
		}
		cancel()
		var last string
		for text := range values {
			last = text
		}
		if last != "new" || a.Err() != nil {
			t.Errorf("followed: %q; session %v", last, a.Err())
		}
		w.ok(watched.Close(w.ctx))
		w.ok(p.Withdraw(w.ctx))
	})
}
