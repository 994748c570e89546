package main

import (
	"context"
	"io"
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

// Who holds a lock with --give-way keeps it when another does not wait for it, or would give way itself, unless they --ask.
func TestWhoIsAskedToGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		s := &stage{t: t, cell: celltest.Start(t, 1), ctx: ctx}
		defer s.beside.Wait()
		defer cancel()
		for line, asks := range map[string]bool{
			"acquire polite --try":                        false,
			"acquire polite --wait 0s":                    false,
			"acquire polite --wait 5s --give-way":         false,
			"acquire polite --wait 5s --ask=false":        false,
			"acquire polite other --try":                  false,
			"acquire polite --try --ask --reason me":      true,
			"acquire other polite --try --ask":            true,
			"acquire polite --wait 0s --ask":              true,
			"acquire polite --wait 30s --give-way --ask":  true,
			"acquire polite --wait 30s":                   true,
			"acquire polite other --wait 30s --shared":    true,
			"acquire polite other --wait 5s --ask=false ": false,
		} {
			said := make(chan string, 1)
			within, stop := context.WithCancel(ctx)
			holder := &stage{t: t, cell: s.cell, ctx: within}
			s.beside.Go(func() {
				_, text, _ := holder.try("", "acquire polite --give-way --reason backfill")
				said <- text
			})
			time.Sleep(time.Minute)
			other := &stage{t: t, cell: s.cell}
			var end context.CancelFunc
			other.ctx, end = context.WithTimeout(ctx, time.Minute) // what it has it keeps for as long
			if strings.Contains(line, " other") {
				line += " -- true"
			}
			_, text, code := other.try("", line)
			time.Sleep(time.Second)
			select {
			case told := <-said:
				if !asks {
					t.Errorf("%s: the holder says: %s", line, told)
				}
			default:
				if asks {
					t.Errorf("%s: the holder keeps the lock; exit code %d: %s", line, code, text)
				}
			}
			end()
			stop()
			time.Sleep(time.Minute)
		}
	})
}

// Who is asked for a lock that he has just lost, or gets a signal then, does not end as if he had held it.
func TestRequestDoesNotHideTheLoss(t *testing.T) {
	lost, lose := context.WithCancelCause(t.Context())
	lose(api.Errorf(api.LockLost, "broken"))
	asked := make(chan struct{})
	close(asked)
	given := request{asked: asked, yield: true, told: func() string { return "asked" }}
	o := &workOptions{globals: &globals{output: "text"}, out: io.Discard, err: io.Discard}
	signalled, interrupt := context.WithCancel(t.Context())
	interrupt()
	for range 100 { // select takes one of several at random
		for what, c := range map[string]struct {
			ctx context.Context
			r   request
		}{"request": {t.Context(), given}, "signal": {signalled, request{}}} {
			err := o.holdLock(c.ctx, nil, &heldLock{lock: fakeLock{lost, long}, member: "/ls/local/a", request: c.r})
			if exitCode(err) != exitLost {
				t.Fatalf("%s: exit code %d (%v)", what, exitCode(err), err)
			}
		}
	}
	held := &heldLock{lock: fakeLock{t.Context(), long}, member: "/ls/local/a", request: given}
	if err := o.holdLock(t.Context(), nil, held); err != nil {
		t.Errorf("who gives way: %v", err)
	}
	if err := o.holdLock(signalled, nil, &heldLock{lock: fakeLock{t.Context(), long}, member: "/ls/local/a"}); err != nil {
		t.Errorf("who is interrupted: %v", err)
	}
}
