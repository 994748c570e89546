//go:build linux

package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// conflict returns the next event of a handle about a conflicting request; nil if none comes within some seconds.
func conflict(t *testing.T, h *client.Handle) *api.Event {
	t.Helper()
	within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for e, err := range h.Events(within) {
		switch {
		case errors.Is(err, api.DeadlineExceeded), errors.Is(err, api.HandleClosed):
			return nil
		case err != nil:
			t.Fatal(err)
		case e.Kind == api.EventConflictingLock:
			return &e
		}
	}
	return nil
}

// A request that is quiet is told to no program, but it has a lock given back that is kept and not used; and so has
// a Delete. Other requests are told with their reasons.
func TestQuietRequestOfAKeptLock(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		h, err := c.one.Open(t.Context(), "/ls/local/lock", client.OpenOptions{
			Write: true, Create: client.File, CacheLock: true, Events: []api.EventKind{api.EventConflictingLock},
		})
		if err != nil {
			t.Fatal(err)
		}
		asks := map[string]func(options ...client.LockOption) error{
			"TryAcquire": func(options ...client.LockOption) error {
				l, err := c.h2.TryAcquire(t.Context(), api.Exclusive, append(options, client.Reason("a backup"))...)
				if err == nil {
					c.release(l)
				}
				return err
			},
			"Acquire": func(options ...client.LockOption) error {
				within, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				l, err := c.h2.Acquire(within, api.Exclusive, append(options, client.Reason("a backup"))...)
				if err == nil {
					c.release(l)
				}
				return err
			},
		}
		for name, ask := range asks {
			c.release(c.acquire(h))
			if err := ask(client.Quiet()); err != nil {
				t.Errorf("%s of a lock that is kept: %v", name, err)
			}
			l := c.acquire(h)
			if err := ask(client.Quiet()); err == nil {
				t.Errorf("%s of a lock that is used succeeds", name)
			}
			if e := conflict(t, h); e != nil {
				t.Errorf("a quiet %s was told: %+v", name, e)
			}
			if err := ask(); err == nil {
				t.Errorf("%s of a lock that is used succeeds", name)
			}
			if e := conflict(t, h); e == nil || e.Explanation != "a backup" || e.Generation != api.Generation(l.Token()) {
				t.Errorf("%s was told: %+v", name, e)
			}
			c.release(l)
			if e := conflict(t, h); e != nil {
				t.Errorf("%s was told again: %+v", name, e)
			}
		}
		c.release(c.acquire(h))
		if err := c.two.Delete(t.Context(), "/ls/local/lock"); err != nil {
			t.Errorf("Delete of a node whose lock is kept: %v", err)
		}
		if e := conflict(t, h); e != nil {
			t.Errorf("a Delete was told: %+v", e)
		}
	})
}

// A request stays quiet, and one that is not stays one, at a master that knows neither of them, nor the holder.
func TestQuietRequestDuringFailOver(t *testing.T) {
	for _, quiet := range []bool{true, false} {
		withCachers(t, func(t *testing.T, c *cachers) {
			h, err := c.one.Open(t.Context(), "/ls/local/other", client.OpenOptions{
				Write: true, Create: client.File, Events: []api.EventKind{api.EventConflictingLock},
			})
			if err != nil {
				t.Fatal(err)
			}
			l := c.acquire(h)
			waiting, err := c.two.Open(t.Context(), "/ls/local/other", client.OpenOptions{Write: true})
			if err != nil {
				t.Fatal(err)
			}
			options := []client.LockOption{client.Reason("a backup")}
			if quiet {
				options = append(options, client.Quiet())
			}
			got := make(chan *client.Lock)
			go func() { got <- c.acquire(waiting, options...) }()
			time.Sleep(time.Second)
			if told := conflict(t, h) != nil; told == quiet {
				t.Errorf("quiet %t: told %t", quiet, told)
			}
			c.cell.FailOver()
			time.Sleep(20 * time.Second)
			if e := conflict(t, h); (e != nil) == quiet {
				t.Errorf("quiet %t: told after the fail-over: %+v", quiet, e)
			}
			c.release(l)
			c.release(<-got)
		})
	}
}
