//go:build linux

package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// TestNobodyWaitsForAHandleThatCachesNothing has a session read a file, and be cut off. Whoever writes waits
// for its cache, unless it has read through a handle with NoCache.
func TestNobodyWaitsForAHandleThatCachesNothing(t *testing.T) {
	for _, noCache := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cell := celltest.Start(t, 3)
			connect := func(host string) *client.Client {
				c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.DialFrom(host), Clock: cell.ClockOf(host)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close(context.Background()) }) // the reader's lease may have ended
				return c
			}
			reader, writer := connect("reader"), connect("writer")
			for _, path := range []string{"/ls/local/f", "/ls/local/beside"} {
				if _, err := writer.Put(t.Context(), path, []byte("1")); err != nil {
					t.Fatal(err)
				}
			}
			open := func(o client.OpenOptions) *client.Handle {
				h, err := reader.Open(t.Context(), "/ls/local/f", o)
				if err != nil {
					t.Fatal(err)
				}
				return h
			}
			h := open(client.OpenOptions{Read: true, NoCache: noCache})
			if _, err := h.ReadDir(t.Context()); api.CodeOf(err) != api.NotDirectory {
				t.Error(err)
			}
			for range 2 {
				if text, _, err := h.Contents(t.Context()); err != nil || string(text) != "1" {
					t.Fatalf("%q, %v", text, err)
				}
			}
			if saved := reader.Stats().Cache.Hits > 0; saved == noCache {
				t.Errorf("NoCache is %v, and the cache has answered a read: %v", noCache, saved)
			}
			for range 2 { // so that its cache has a lease: the second is answered by it
				if _, _, err := reader.Get(t.Context(), "/ls/local/beside"); err != nil {
					t.Fatal(err)
				}
			}
			cell.Cut("reader")
			began := cell.ClockOf("writer")()
			if _, err := writer.Put(t.Context(), "/ls/local/f", []byte("2")); err != nil {
				t.Fatal(err)
			}
			if waited := cell.ClockOf("writer")().Sub(began); (waited > time.Second) == noCache {
				t.Errorf("NoCache is %v, and the write took %v", noCache, waited)
			}
			cell.Heal("reader")
			if text, _, err := h.Contents(t.Context()); err != nil || string(text) != "2" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// TestHandleWithoutACacheBesideOneWithACache reads a file through both, while others lock and write it: the one asks the
// cell each time, and shows the lock's generation, and what it reads is not kept for the other.
func TestHandleWithoutACacheBesideOneWithACache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 3)
		c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.DialFrom("one"), Clock: cell.ClockOf("one")})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		open := func(o client.OpenOptions) *client.Handle {
			h, err := c.Open(t.Context(), "/ls/local/f", o)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		cached := open(client.OpenOptions{Read: true, Write: true, Create: client.File})
		asking := open(client.OpenOptions{Read: true, NoCache: true})
		for range 3 {
			l, err := cached.Acquire(t.Context(), api.Exclusive)
			if err != nil {
				t.Fatal(err)
			}
			if stat, err := asking.Stat(t.Context()); err != nil || stat.Lock != l.Sequencer().Generation {
				t.Errorf("generation %d of the lock is shown as %d, %v", l.Sequencer().Generation, stat.Lock, err)
			}
			if stat, err := cached.Stat(t.Context()); err != nil || stat.Lock != 0 {
				t.Errorf("a handle that caches shows the lock's generation: %d, %v", stat.Lock, err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		before := c.Stats().Cache
		if err := asking.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := open(client.OpenOptions{Read: true, NoCache: true})
		if _, _, err := again.Contents(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := c.Stats().Cache; after.Hits != before.Hits {
			t.Errorf("a handle with NoCache was answered by the cache: %d hits, then %d", before.Hits, after.Hits)
		}
	})
}
