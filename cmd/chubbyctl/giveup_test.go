package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// A user whose lock could not be released is told that; others are not.
func TestLockThatIsNotReleased(t *testing.T) {
	for what, trouble := range map[string]struct {
		make func(c *celltest.Cell, session *client.Client)
		told bool
	}{
		"none":         {func(*celltest.Cell, *client.Client) {}, false},
		"cut off":      {func(c *celltest.Cell, _ *client.Client) { c.Cut("web1") }, true},
		"session ends": {func(c *celltest.Cell, session *client.Client) { c.Expire(session.Session()) }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := celltest.Start(t, 1)
			session, err := client.New(t.Context(), client.Config{Servers: c.Servers(), Dialer: c.DialFrom("web1"), Clock: c.ClockOf("web1")})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = session.Close(ctx) // it may be cut off
			}()
			h, err := session.Open(t.Context(), "/ls/local/nightly", client.OpenOptions{Write: true, Create: client.File})
			if err != nil {
				t.Fatal(err)
			}
			lock, err := h.Acquire(t.Context(), api.Exclusive)
			if err != nil {
				t.Fatal(err)
			}
			trouble.make(c, session)
			var told buffer
			o := &workOptions{globals: &globals{output: "text", timeout: 3 * time.Second}, err: &told}
			o.giveUpLock(t.Context(), session, releasable(lock))
			if got := strings.Contains(told.String(), "may not be released yet"); got != trouble.told {
				t.Errorf("%s: told %q", what, told.String())
			}
		})
	}
}

// A lock that was released is reported as released, although a client that caches the list of candidates
// does not answer.
func TestCandidateThatCannotLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 1)
		dial := func(host string) *client.Client {
			session, err := client.New(t.Context(), client.Config{Servers: c.Servers(), Dialer: c.DialFrom(host), Clock: c.ClockOf(host)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = session.Close(ctx) // it may be cut off
			})
			return session
		}
		primary, reader := dial("web1"), dial("web2")
		var told buffer
		o := &electOptions{value: "web1", workOptions: workOptions{
			globals: &globals{output: "text", timeout: 15 * time.Second}, err: &told, path: api.MustParsePath("/ls/local/primary"), begun: stopwatch(),
		}}
		held, err := o.campaign(t.Context(), t.Context(), primary)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // until its registration says that it is the primary
		h, err := reader.Open(t.Context(), "/ls/local/primary.candidates", client.OpenOptions{Read: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.ReadDir(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Cut("web2")
		began := time.Now()
		o.giveUpLock(t.Context(), primary, held)
		if took := time.Since(began); took > term.Patience || told.String() != "" {
			t.Errorf("after %v it was told %q", took, told.String())
		}
		again, err := primary.Open(t.Context(), "/ls/local/primary", client.OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := again.TryAcquire(t.Context(), api.Exclusive); err != nil {
			t.Errorf("the lock: %v", err)
		}
	})
}

// A candidate that another goes before is not told that the cell does not answer.
func TestCandidateThatIsOutranked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var waiting sync.WaitGroup
		defer waiting.Wait()
		defer cancel()
		var told [3]buffer
		for i := range told {
			session, err := client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.Dial, Clock: celltest.Clock})
			if err != nil {
				t.Fatal(err)
			}
			o := &electOptions{value: "web", priority: 3 - i, workOptions: workOptions{
				globals: &globals{output: "text", timeout: 15 * time.Second}, err: &told[i], path: api.MustParsePath("/ls/local/primary"), begun: stopwatch(),
			}}
			waiting.Go(func() {
				_, _ = o.campaign(ctx, ctx, session)
				<-ctx.Done()
				_ = session.Close(ctx)
			})
			time.Sleep(5 * time.Second)
		}
		if text := told[1].String(); !strings.Contains(text, "place 1 of 1") {
			t.Errorf("the next one is told %q", text)
		}
		if text := told[2].String(); !strings.Contains(text, "another candidate goes first") || strings.Contains(text, "yet") {
			t.Errorf("who is outranked is told %q", text)
		}
	})
}
