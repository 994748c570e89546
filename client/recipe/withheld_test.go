//go:build linux

package recipe

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

// No event tells of what is done while its reader may not read it. What is followed is looked at now and then, and so it is known
// a lease after it may be read again.
func TestWhatIsDoneWhileItMayNotBeRead(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("author")
		w.Put(c, "/ls/local/acl/authors", "author\n")
		w.Put(c, "/ls/local/acl/all", "author\nreader\n")
		const file, dir = "/ls/local/file", "/ls/local/dir"
		w.Put(c, file, "host:1")
		w.Mkdir(c, dir)
		permit := func(list string, paths ...string) {
			for _, path := range paths {
				h, err := c.Open(w.Ctx, path, client.OpenOptions{ChangeACL: true})
				w.OK(err)
				_, err = h.SetACL(w.Ctx, api.ACL{Read: list, Write: list, Change: list})
				w.OK(err)
				w.OK(h.Close(w.Ctx))
			}
		}
		permit("all", file, dir)
		l, err := c.Acquire(w.Ctx, file)
		w.OK(err)

		reader := w.Client("reader")
		f, err := WatchConfig(w.Ctx, w.ConfigOf("reader"), file, func(text []byte) (string, error) { return string(text), nil }, ConfigFileOptions[string]{})
		w.OK(err)
		defer f.Close()
		watched := recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[Change, error] { return Watch(ctx, reader, file) })
		observed := recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[Reign, error] { return Observe(ctx, reader, file) })
		members := recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[[]Member, error] { return WatchMembers(ctx, reader, dir) })
		endpoints := recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[[]Endpoint, error] { return WatchEndpoints(ctx, reader, file) })
		pass(time.Second)
		permit("authors", file, dir)
		w.Put(c, file, "host:2")
		p, err := Announce(w.Ctx, c, dir, "a", nil)
		w.OK(err)
		permit("all", dir+"/a", file, dir)
		pass(verify + time.Second)
		if f.Value() != "host:2" || !f.Fresh() {
			t.Errorf("the value is %q, fresh %v", f.Value(), f.Fresh())
		}
		for _, one := range []struct{ told, last string }{
			{watched.Words(func(c Change) string { return string(c.Contents) }, " "), "host:2"},
			{observed.Words(func(r Reign) string { return string(r.Value) }, " "), "host:2"},
			{members.Words(names, " "), "a="},
			{endpoints.Words(addresses, " "), "host:2*0"},
		} {
			if !strings.HasSuffix(one.told, one.last) {
				t.Errorf("told %q, want %q at last", one.told, one.last)
			}
		}
		w.OK(p.Withdraw(w.Ctx))
		w.OK(l.Release(w.Ctx))
	})
}

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
