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
			return w.Client(host, func(cfg *client.Config) { cfg.NoCache, cfg.Lease = true, api.MaxLease })
		}
		a, operator := open("a"), open("operator")
		p, err := Announce(w.Ctx, a, up, "a", []byte("1"))
		w.OK(err)
		const busy, followed = "/ls/local/busy", "/ls/local/followed"
		w.Put(operator, busy, "0")
		w.Put(operator, followed, "old")
		watched, err := a.Open(w.Ctx, busy, client.OpenOptions{Read: true, Events: []api.EventKind{api.EventContentsModified}})
		w.OK(err)
		ctx, cancel := context.WithCancel(w.Ctx)
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
		pass(time.Second)

		w.Cut("a")
		h, err := operator.Open(w.Ctx, busy, client.OpenOptions{Write: true})
		w.OK(err)
		for range api.MaxEventQueue + 1 {
			_, err := h.SetContents(w.Ctx, []byte("1"))
			w.OK(err)
		}
		w.Rm(operator, up+"/a")
		w.Rm(operator, followed)
		w.Put(operator, followed, "new")
		w.Heal("a")
		w.Settle()

		list, err := Members(w.Ctx, operator, up)
		w.OK(err)
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
		w.OK(watched.Close(w.Ctx))
		w.OK(p.Withdraw(w.Ctx))
	})
}
