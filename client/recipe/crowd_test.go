//go:build linux

package recipe

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Semaphores of one client that wait for more slots than a session has places in queues
// find each slot that becomes free.
func TestSemaphoresOfOneClient(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const semaphores, slots = 20, 10
		holder, c := w.dial("holder"), w.dial("c")
		var held []*Permit
		for i := range semaphores {
			s := NewSemaphore(holder, fmt.Sprintf("/ls/local/s%02d", i), slots)
			for range slots {
				p, err := s.Acquire(w.ctx, SemaphoreOptions{})
				w.ok(err)
				held = append(held, p)
			}
		}
		ctx, cancel := context.WithCancel(w.ctx)
		had, done := make(chan int, semaphores), make(chan struct{}, semaphores)
		for i := range semaphores {
			go func() {
				defer func() { done <- struct{}{} }()
				p, err := NewSemaphore(c, fmt.Sprintf("/ls/local/s%02d", i), slots).Acquire(ctx, SemaphoreOptions{})
				if err == nil {
					had <- i
					_ = p.Release(w.ctx)
				}
			}()
		}
		pass(time.Minute)
		for i := range semaphores {
			w.ok(held[i*slots+i%slots].Release(w.ctx))
		}
		pass(time.Minute)
		if len(had) != semaphores {
			t.Errorf("of %d semaphores with a free slot %d were had", semaphores, len(had))
		}
		cancel()
		for range semaphores {
			<-done
		}
	})
}
