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
		holder, c := w.Client("holder"), w.Client("c")
		var held []*Permit
		for i := range semaphores {
			s := NewSemaphore(holder, fmt.Sprintf("/ls/local/s%02d", i), slots)
			for range slots {
				p, err := s.Acquire(w.Ctx, SemaphoreOptions{})
				w.OK(err)
				held = append(held, p)
			}
		}
		ctx, cancel := context.WithCancel(w.Ctx)
		had, done := make(chan int, semaphores), make(chan struct{}, semaphores)
		for i := range semaphores {
			go func() {
				defer func() { done <- struct{}{} }()
				p, err := NewSemaphore(c, fmt.Sprintf("/ls/local/s%02d", i), slots).Acquire(ctx, SemaphoreOptions{})
				if err == nil {
					had <- i
					_ = p.Release(w.Ctx)
				}
			}()
		}
		pass(time.Minute)
		for i := range semaphores {
			w.OK(held[i*slots+i%slots].Release(w.Ctx))
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
