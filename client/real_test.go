//go:build linux

// A cell needs more of its system than a client does.

package client_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
)

// A lock survives the loss of the master, its waiter keeps waiting, and gets it
// when it is released (Chubby §1: locks survive fail-over).
func TestRealCellFailOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 3)
		open := func() (*client.Client, *client.Handle) {
			c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock})
			if err != nil {
				t.Fatal(err)
			}
			h, err := c.Open(t.Context(), "/ls/local/lock", client.OpenOptions{Read: true, Write: true, Create: client.File, LockDelay: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return c, h
		}
		one, first := open()
		two, second := open()
		l, err := first.Acquire(t.Context(), api.Exclusive, client.Reason("first"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := second.TryAcquire(t.Context(), api.Exclusive); !errors.Is(err, api.LockHeld) {
			t.Errorf("TryAcquire: %v", err)
		}
		got := make(chan *client.Lock)
		go func() {
			l, err := second.Acquire(t.Context(), api.Exclusive)
			if err != nil {
				t.Errorf("the waiter: %v", err)
			}
			got <- l
		}()
		for range 2 {
			id := cell.Master()
			cell.Kill(id)
			if _, err := first.SetContents(t.Context(), []byte(id)); err != nil {
				t.Errorf("SetContents: %v", err)
			}
			time.Sleep(5 * time.Second)
			cell.Restart(id)
			time.Sleep(20 * time.Second)
		}
		if l.Err() != nil || one.State() != session.Safe || two.State() != session.Safe {
			t.Errorf("after the fail-overs: %v, %v, %v", l.Err(), one.State(), two.State())
		}
		if err := one.CheckSequencer(t.Context(), l.Sequencer().String()); err != nil {
			t.Errorf("CheckSequencer: %v", err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
		if next := <-got; next == nil || next.Token() <= l.Token() {
			t.Errorf("the waiter got %v after %v", next, l.Token())
		}
		for _, c := range []*client.Client{one, two} {
			if err := c.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	})
}

// A holder that is cut off knows that it is one, a Margin before the cell gives
// its lock to the next in the queue, who does not wait needlessly either
// (Chubby §2.4, §2.8).
func TestRealCellNoOverlap(t *testing.T) {
	for _, delay := range []time.Duration{0, 10 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			cell := celltest.Start(t, 3)
			open := func(host string) (*client.Client, *client.Handle) {
				c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.DialFrom(host), Clock: celltest.Clock})
				if err != nil {
					t.Fatal(err)
				}
				h, err := c.Open(t.Context(), "/ls/local/lock", client.OpenOptions{Write: true, Create: client.File, LockDelay: delay})
				if err != nil {
					t.Fatal(err)
				}
				return c, h
			}
			one, first := open("h1")
			two, second := open("h2")
			l, err := first.Acquire(t.Context(), api.Exclusive)
			if err != nil {
				t.Fatal(err)
			}
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
			if err := one.Close(t.Context()); err != nil {
				t.Errorf("Close of a session that is gone: %v", err)
			}
			if err := two.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}
