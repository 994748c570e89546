package main

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
)

// Who holds a lock with --give-way keeps it when another does not wait for it, or would give way itself, unless they --ask.
func TestWhoIsAskedToGiveWay(t *testing.T) {
	celltest.Run(t, 1, func(t *testing.T, cell *celltest.Cell) {
		c := cell.Client("other")
		several := func(ask bool) func(ctx context.Context) {
			return func(ctx context.Context) {
				o := &acquireOptions{ask: ask, askGiven: true, workOptions: workOptions{
					globals: &globals{output: "text", timeout: 15 * time.Second}, err: io.Discard, verb: "acquire", try: true, waitLimit: waitLimit{begun: stopwatch()},
					paths: []api.Path{api.MustParsePath("/ls/local/aside"), api.MustParsePath("/ls/local/polite")}, path: api.MustParsePath("/ls/local/polite"),
				}}
				if _, err := o.acquireAll(ctx, ctx, c); exitCode(err) != exitHeld {
					t.Errorf("several locks: %v", err)
				}
			}
		}
		line := func(line string) func(ctx context.Context) {
			return func(ctx context.Context) { (&stage{t: t, cell: cell, ctx: ctx}).try("", line) }
		}
		for _, other := range []struct {
			what string
			asks bool
			act  func(ctx context.Context)
		}{
			{"--try", false, line("acquire polite --try")},
			{"--wait 0s", false, line("acquire polite --wait 0s")},
			{"--give-way", false, line("acquire polite --wait 5s --give-way")},
			{"--ask=false", false, line("acquire polite --wait 5s --ask=false")},
			{"several, --ask=false", false, several(false)},
			{"--try --ask", true, line("acquire polite --try --ask")},
			{"--wait 0s --ask", true, line("acquire polite --wait 0s --ask")},
			{"--give-way --ask", true, line("acquire polite --wait 30s --give-way --ask")},
			{"--wait 30s", true, line("acquire polite --wait 30s")},
			{"several, --ask", true, several(true)},
		} {
			within, stop := context.WithTimeout(t.Context(), 5*time.Minute)
			holder := &stage{t: t, cell: cell, ctx: within}
			said := make(chan string, 1)
			holder.beside.Go(func() {
				_, text, _ := holder.try("", "acquire polite --give-way --reason backfill")
				said <- text
			})
			time.Sleep(time.Minute)
			brief, end := context.WithTimeout(t.Context(), time.Minute) // what it has it keeps for as long
			other.act(brief)
			time.Sleep(time.Second)
			select {
			case text := <-said:
				if !other.asks {
					t.Errorf("%s: the holder says: %s", other.what, text)
				}
			default:
				if other.asks {
					t.Errorf("%s: the holder keeps the lock", other.what)
				}
			}
			end()
			stop()
			holder.beside.Wait()
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
