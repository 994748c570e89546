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
	"testing/synctest"
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
		synctest.Test(t, func(t *testing.T) {
			cell := celltest.Start(t, 3)
			open := func(host string) (*client.Client, *client.Handle) {
				c := dialled(t, client.Config{Servers: cell.Servers(), Dialer: cell.DialFrom(host), Clock: celltest.Clock})
				h := opened(t, c, "/ls/local/lock", client.OpenOptions{Write: true, Create: client.File, LockDelay: delay})
				return c, h
			}
			one, first := open("h1")
			two, second := open("h2")
			l := acquired(t, first)
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
			closed(t, two)
		})
	}
}

// With a real master, too, connections that fall silent cost no session, and no lock:
// neither one that is alone, nor those that share a connection.
func TestSilentConnectionToACell(t *testing.T) {
	for _, sessions := range []int{1, 8} {
		for phase := range 4 {
			t.Run(fmt.Sprint(sessions, " sessions, phase ", phase), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cell := celltest.Start(t, 1)
					wires := client.NewWires(cell.DialFrom("host"))
					var states atomic.Int32
					cfg := client.Config{Servers: cell.Servers(), Dialer: wires.Dial, Clock: celltest.Clock, OnState: func(client.StateChange) { states.Add(1) }}
					shared := ok(client.Dial(t.Context(), cfg))(t)
					var all []*client.Client
					var locks []*client.Lock
					for i := range sessions {
						c := ok(shared.NewSession(t.Context(), cfg.Session()))(t)
						h := opened(t, c, fmt.Sprint("/ls/local/", i), client.OpenOptions{Write: true, Create: client.File})
						l := acquired(t, h)
						all, locks = append(all, c), append(locks, l)
						time.Sleep(900 * time.Millisecond)
					}
					for range 3 {
						time.Sleep(20*time.Second + time.Duration(phase)*2*time.Second)
						wires.Silence("", false)
					}
					time.Sleep(20 * time.Second)
					if states.Load() > 0 {
						t.Errorf("%d changes of state", states.Load())
					}
					for i, l := range locks {
						if err := l.Err(); err != nil {
							t.Errorf("lock %d: %v", i, err)
						}
						noError(t, all[i].Close(t.Context()))
					}
					_ = shared.Close() // it never fails
				})
			})
		}
	}
}

// Text that cannot be sent is refused at once, and named, whatever call it is for: no
// attempt will ever do better.
func TestTextThatIsNoUTF8(t *testing.T) {
	const text = "caf\xe9"
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 1)
		ctx := bounded(t, time.Minute)
		config := client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock}
		c := ok(client.New(ctx, config))(t)
		h := ok(c.Open(ctx, "/ls/local/lock", client.OpenOptions{Write: true, Create: client.File}))(t)
		for _, one := range []struct {
			field string
			call  func() error
		}{
			{"reason", func() error {
				_, err := h.Acquire(ctx, api.Exclusive, client.Reason(text))
				return err
			}},
			{"reason", func() error {
				_, err := h.TryAcquire(ctx, api.Exclusive, client.Reason(text))
				return err
			}},
			{"reason", func() error { return c.BreakLock(ctx, "/ls/local/lock", text, false) }},
			{"reason", func() error { return c.EndSession(ctx, c.Session()+1, text) }},
			{"principal", func() error { return c.SetPrincipalQuota(ctx, text, api.Quota{Nodes: 1}) }},
			{"to", func() error {
				_, err := c.Transfer(ctx, text)
				return err
			}},
			{"sequencer", func() error { return c.CheckSequencer(ctx, text) }},
			{"as", func() error {
				named := config
				named.As = text
				_, err := client.New(ctx, named)
				return err
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
		noError(t, errors.Join(l.Release(ctx), c.Close(ctx)))
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
