//go:build linux

// A cell needs more of its system than a client does.

package client_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A holder that is cut off knows that it is one, a Margin before the cell gives
// its lock to the next in the queue, who does not wait needlessly either
// (Chubby §2.4, §2.8).
func TestRealCellNoOverlap(t *testing.T) {
	for _, delay := range []time.Duration{0, 10 * time.Second, time.Minute} {
		celltest.Run(t, 1, func(t *testing.T, cell *celltest.Cell) {
			one, o := cell.Client("h1"), client.OpenOptions{Write: true, Create: client.File, LockDelay: delay}
			l, second := acquired(t, opened(t, one, lockPath, o)), opened(t, cell.Client("h2"), lockPath, o)
			granted := make(chan time.Time)
			go func() {
				if _, err := second.Acquire(t.Context(), api.Exclusive); err != nil {
					t.Errorf("the waiter: %v", err)
				}
				granted <- time.Now()
			}()
			time.Sleep(30 * time.Second)
			cut := time.Now()
			cell.Cut("h1")
			<-l.Context().Done()
			ended := time.Now()
			want, left := client.LeaseNearEnd, client.Margin(one.Lease(), delay)
			if delay > api.DefaultGrace { // the session is over before the lock-delay is
				want, left = client.GraceOver, delay-api.DefaultGrace-time.Second
			}
			if !errors.Is(l.Err(), want) || l.ExclusiveUntil() < left {
				t.Errorf("delay %v: %v, exclusive for %v, want at least %v", delay, l.Err(), l.ExclusiveUntil(), left)
			}
			next := <-granted
			if gap, margin := next.Sub(ended), client.Margin(one.Lease(), delay); gap < margin {
				t.Errorf("delay %v: granted to the next %v after the context ended; the margin is %v", delay, gap, margin)
			}
			if wait, most := next.Sub(cut), one.Lease()+delay+3*time.Second; wait > most {
				t.Errorf("delay %v: granted to the next %v after the cut, want at most %v", delay, wait, most)
			}
			<-one.Done()
			if !errors.Is(one.Err(), client.GraceOver) {
				t.Errorf("delay %v: %v", delay, one.Err())
			}
			wants(t, "Close of a session that is gone", one.Close(t.Context()), nil)
		})
	}
}

// With a real master, too, connections that fall silent, and that sessions share, cost none of them, and no lock.
func TestSilentConnectionToACell(t *testing.T) {
	celltest.Run(t, 1, func(t *testing.T, cell *celltest.Cell) {
		wires, cfg := client.NewWires(cell.DialFrom("host")), cell.ConfigOf("host")
		var states atomic.Int32
		cfg.Dialer, cfg.OnState = wires.Dial, func(client.StateChange) { states.Add(1) }
		shared := ok(client.Dial(t.Context(), cfg))(t)
		defer shared.Close()
		var locks []*client.Lock
		for i := range 8 {
			c := ok(shared.NewSession(t.Context(), cfg.Session()))(t)
			defer c.Close(t.Context())
			locks = append(locks, acquired(t, opened(t, c, fmt.Sprint("/ls/local/", i), client.OpenOptions{Write: true, Create: client.File})))
			time.Sleep(900 * time.Millisecond)
		}
		for phase := range 4 {
			time.Sleep(20*time.Second + time.Duration(phase)*2*time.Second)
			wires.Silence("", false)
		}
		time.Sleep(20 * time.Second)
		if states.Load() > 0 {
			t.Errorf("%d changes of state", states.Load())
		}
		for _, l := range locks {
			noError(t, l.Err())
		}
	})
}

// Text that cannot be sent is refused at once, and named, whatever call it is for: no
// attempt will ever do better.
func TestTextThatIsNoUTF8(t *testing.T) {
	const text = "caf\xe9"
	celltest.Run(t, 1, func(t *testing.T, cell *celltest.Cell) {
		ctx, c := bounded(t, time.Minute), cell.Client("host")
		h := ok(c.Open(ctx, "/ls/local/lock", client.OpenOptions{Write: true, Create: client.File}))(t)
		for _, one := range []struct {
			field string
			call  func() error
		}{
			{"reason", func() error { return second(h.Acquire(ctx, api.Exclusive, client.Reason(text))) }},
			{"reason", func() error { return second(h.TryAcquire(ctx, api.Exclusive, client.Reason(text))) }},
			{"reason", func() error { return c.BreakLock(ctx, "/ls/local/lock", text, false) }},
			{"reason", func() error { return c.EndSession(ctx, c.Session()+1, text) }},
			{"principal", func() error { return c.SetPrincipalQuota(ctx, text, api.Quota{Nodes: 1}) }},
			{"to", func() error { return second(c.Transfer(ctx, text)) }},
			{"sequencer", func() error { return c.CheckSequencer(ctx, text) }},
			{"as", func() error {
				named := cell.ConfigOf("host")
				named.As = text
				return second(client.New(ctx, named))
			}},
		} {
			begun := time.Now()
			err := one.call()
			if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), strconv.Quote(one.field)) {
				t.Errorf("%s: %v", one.field, err)
			}
			if took := time.Since(begun); took > time.Second {
				t.Errorf("%s: refused after %v", one.field, took)
			}
		}
		// What was refused leaves nothing behind: neither a place in the queue nor a request that is owed an answer.
		l := ok(h.Acquire(ctx, api.Exclusive, client.Reason("café")))(t)
		noError(t, l.Release(ctx))
	})
}

// Every block of Go in docs/files-from-go.md is, apart from indentation, in an example that is run.
func TestFilesPageShowsTestedCode(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		text := ok(os.ReadFile(name))(t)
		return regexp.MustCompile(`(?m)^[\t ]+`).ReplaceAllString(string(text), "")
	}
	examples := read("example_files_test.go") + read("recipe/example_output_test.go")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read("../docs/files-from-go.md"), -1)
	if len(blocks) != 7 {
		t.Errorf("the page has %d blocks of Go; want 7", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(examples, block[1]) {
			t.Errorf("this code is in no example:\n%s", block[1])
		}
	}
}
