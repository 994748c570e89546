package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Who holds a lock with --give-way lets go when another asks for it, and says for what; others do not, and nobody does before.
func TestGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		s := &stage{t: t, cell: celltest.Start(t, 1), ctx: ctx}
		defer s.beside.Wait()
		defer cancel()
		c, err := client.New(t.Context(), client.Config{Servers: s.cell.Servers(), Dialer: s.cell.Dial, Clock: celltest.Clock})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		h, err := c.Open(t.Context(), "/ls/local/polite", client.OpenOptions{Write: true, Create: client.File})
		if err != nil {
			t.Fatal(err)
		}
		said := make(chan string, 1)
		for _, reason := range []string{"an urgent restore", ""} {
			s.beside.Go(func() {
				_, text, code := s.try("", "acquire polite --give-way --reason backfill")
				if code != 0 {
					t.Errorf("it ends with %d", code)
				}
				said <- text
			})
			time.Sleep(10 * time.Minute)
			select {
			case text := <-said:
				t.Fatalf("it lets go though nobody asks: %s", text)
			default:
			}
			began := time.Now()
			lock, err := h.Acquire(ctx, api.Exclusive, client.Reason(reason))
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it lets go after %v", took)
			}
			if text := <-said; !strings.Contains(text, "another asks for /ls/local/polite ") || !strings.Contains(text, ": giving way") || !strings.Contains(text, reason) {
				t.Errorf("asked for %q it says %s", reason, text)
			}
			if err := lock.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
