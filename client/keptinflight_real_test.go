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

// A grant that is looked at only after a fail-over is of a lock whose holder the new master does not know: it
// cannot recall the lock. It is not kept.
func TestGrantFromBeforeAFailOverIsNotKept(t *testing.T) {
	withCachers(t, func(t *testing.T, c *cachers) {
		before := c.acquire(c.h2)
		failedOver, queued := make(chan struct{}), make(chan struct{}, 10)
		got := make(chan *client.Lock)
		go func() {
			got <- c.acquire(c.h1, client.OnQueued(func(client.Queued) { queued <- struct{}{}; <-failedOver }))
		}()
		<-queued
		epoch := c.one.Epoch()
		c.release(before)
		pass(time.Second) // the grant is on its way
		c.cell.FailOver()
		for c.one.Epoch() == epoch {
			pass(10 * time.Millisecond)
		}
		pass(time.Second)
		calls := c.one.Stats().Attempts
		close(failedOver)
		l := <-got
		if c.one.Stats().Attempts != calls {
			t.Fatal("the grant is of the new master")
		}
		waits := make(chan *client.Lock)
		go func() { waits <- c.acquire(c.h2) }()
		began := time.Now()
		for {
			c.release(l)
			select {
			case next := <-waits:
				c.release(next)
				return
			case <-time.After(10 * time.Millisecond):
			}
			if time.Since(began) > time.Minute {
				t.Errorf("another has waited for %v, and the lock was used all the time", time.Since(began))
				if err := c.h1.Close(t.Context()); err != nil {
					t.Error(err)
				}
				c.release(<-waits)
				return
			}
			within, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			next, err := c.h1.Acquire(within, api.Exclusive)
			cancel()
			if err == nil {
				l = next
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
	})
}
