//go:build linux

package recipe

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
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
		ctx, cancel := context.WithCancel(w.Ctx)
		var running sync.WaitGroup
		var watched, observed string
		var members []Member
		var endpoints []Endpoint
		running.Go(func() {
			for v, err := range Watch(ctx, reader, file) {
				if err == nil {
					watched = string(v.Contents)
				}
			}
		})
		running.Go(func() {
			for r, err := range Observe(ctx, reader, file) {
				if err == nil {
					observed = string(r.Value)
				}
			}
		})
		running.Go(func() {
			for list, err := range WatchMembers(ctx, reader, dir) {
				if err == nil {
					members = list
				}
			}
		})
		running.Go(func() {
			for list, err := range WatchEndpoints(ctx, reader, file) {
				if err == nil {
					endpoints = list
				}
			}
		})
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
		cancel()
		running.Wait()
		if watched != "host:2" || observed != "host:2" {
			t.Errorf("Watch has told %q last, and Observe %q", watched, observed)
		}
		if len(members) != 1 || !slices.EqualFunc(endpoints, []Endpoint{{Address: "host:2"}}, Endpoint.Equal) {
			t.Errorf("WatchMembers has told %v last, and WatchEndpoints %v", members, endpoints)
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
