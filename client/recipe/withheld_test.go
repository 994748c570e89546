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
		c := w.dial("author")
		w.put(c, "/ls/local/acl/authors", "author\n")
		w.put(c, "/ls/local/acl/all", "author\nreader\n")
		const file, dir = "/ls/local/file", "/ls/local/dir"
		w.put(c, file, "host:1")
		w.mkdir(c, dir)
		permit := func(list string, paths ...string) {
			for _, path := range paths {
				h, err := c.Open(w.ctx, path, client.OpenOptions{ChangeACL: true})
				w.ok(err)
				_, err = h.SetACL(w.ctx, api.ACL{Read: list, Write: list, Change: list})
				w.ok(err)
				w.ok(h.Close(w.ctx))
			}
		}
		permit("all", file, dir)
		l, err := c.Acquire(w.ctx, file)
		w.ok(err)

		reader := w.dial("reader")
		f, err := WatchConfig(w.ctx, w.config("reader"), file, func(text []byte) (string, error) { return string(text), nil }, ConfigFileOptions[string]{})
		w.ok(err)
		defer f.Close()
		ctx, cancel := context.WithCancel(w.ctx)
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
		w.put(c, file, "host:2")
		p, err := Announce(w.ctx, c, dir, "a", nil)
		w.ok(err)
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
		w.ok(p.Withdraw(w.ctx))
		w.ok(l.Release(w.ctx))
	})
}
