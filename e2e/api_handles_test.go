package e2e

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func handleCases() map[string]func(*suite) {
	return map[string]func(*suite){
		"bound-to-its-instance": boundToItsInstance,
		"relative":              relative,
		"modes":                 modes,
		"close-never-fails":     closeNeverFails,
		"poison":                poison,
		"cancel":                cancelOneCall,
		"shared":                sharedHandle,
	}
}

// Chubby §2.6: calls fail if the node was deleted, even if it was created again.
func boundToItsInstance(s *suite) {
	old := s.file(s.alice, "f")
	s.ok(s.file(s.bob, "f").Delete(s.ctx))
	s.write(s.file(s.bob, "f"), "new")
	_, err := old.SetContents(s.ctx, []byte("old"))
	s.fails(err, api.HandleClosed)
	_, _, err = old.Contents(s.ctx)
	s.fails(err, api.HandleClosed)
	_, err = old.TryAcquire(s.ctx, api.Exclusive)
	s.fails(err, api.HandleClosed)
	s.fails(old.Delete(s.ctx), api.HandleClosed)
	if got := s.contents(s.file(s.bob, "f")); got != "new" {
		s.Errorf("the new file says %q", got)
	}
}

// Chubby §2.6: Open is the only call that takes a name, which may be relative to
// the handle of a directory.
func relative(s *suite) {
	d := s.open(s.alice, "d", client.OpenOptions{Read: true, Create: client.Directory})
	h, err := d.Open(s.ctx, "f", client.OpenOptions{Read: true, Write: true, Create: client.NewFile})
	s.ok(err)
	if h.Path() != s.path("d/f") || !h.Created() {
		s.Errorf("opened %s, created %v", h.Path(), h.Created())
	}
	_, err = h.Open(s.ctx, "g", client.OpenOptions{Read: true, Create: client.File})
	s.fails(err, api.NotDirectory)
	s.ok(h.Delete(s.ctx))
	s.ok(s.open(s.bob, "d", client.OpenOptions{Write: true}).Delete(s.ctx))
	s.open(s.bob, "d", client.OpenOptions{Read: true, Create: client.Directory})
	_, err = d.Open(s.ctx, "f", client.OpenOptions{Read: true, Create: client.File})
	s.fails(err, api.HandleClosed) // the directory is another one now
}

// Chubby §2.6: a handle serves what it was opened for.
func modes(s *suite) {
	s.file(s.alice, "f")
	reader := s.open(s.bob, "f", client.OpenOptions{Read: true})
	_, err := reader.SetContents(s.ctx, nil)
	s.fails(err, api.PermissionDenied)
	_, err = reader.TryAcquire(s.ctx, api.Shared) // §2.4: so that a reader cannot block a writer
	s.fails(err, api.PermissionDenied)
	_, err = reader.SetACL(s.ctx, api.ACL{Read: "everyone"})
	s.fails(err, api.PermissionDenied)
	writer := s.open(s.bob, "f", client.OpenOptions{Write: true})
	_, _, err = writer.Contents(s.ctx)
	s.fails(err, api.PermissionDenied)
	s.write(writer, "written")
}

// Chubby §2.6: Close never fails.
func closeNeverFails(s *suite) {
	h := s.file(s.alice, "f")
	s.ok(s.file(s.bob, "f").Delete(s.ctx))
	s.ok(h.Close(s.ctx))
	s.ok(h.Close(s.ctx))
	_, err := h.Stat(s.ctx)
	s.fails(err, api.HandleClosed)
	held := s.file(s.alice, "g")
	s.acquire(held, api.Exclusive)
	s.ok(held.Close(s.ctx)) // and gives back the lock
	_, err = s.file(s.bob, "g").TryAcquire(s.ctx, api.Exclusive)
	s.ok(err)
}

// Chubby §2.6: Poison fails outstanding and later operations without freeing the
// handle.
func poison(s *suite) {
	s.acquire(s.file(s.bob, "f"), api.Exclusive)
	h := s.file(s.alice, "f")
	waiting := make(chan error)
	go func() {
		_, err := h.Acquire(s.ctx, api.Exclusive)
		waiting <- err
	}()
	s.soon("waiting", func() bool { return s.waiters("f") == 1 })
	h.Poison()
	s.fails(<-waiting, api.HandleClosed)
	_, err := h.Stat(s.ctx)
	s.fails(err, api.HandleClosed)
	s.ok(h.Close(s.ctx))
	s.soon("the end of waiting", func() bool { return s.waiters("f") == 0 })
}

// waiters returns how many waiters a lock has.
func (s *suite) waiters(name string) int {
	locks, err := s.bob.Cell().Locks(s.ctx, s.path(name))
	s.ok(err)
	for _, l := range locks {
		if l.Path == s.path(name) {
			return len(l.Waiters)
		}
	}
	return 0
}

// Chubby §4.4, the authors' regret: one call that blocks can be withdrawn
// without giving up the handle.
func cancelOneCall(s *suite) {
	held := s.acquire(s.file(s.bob, "f"), api.Exclusive)
	h := s.file(s.alice, "f")
	ctx, cancel := context.WithTimeout(s.ctx, 300*time.Millisecond)
	defer cancel()
	_, err := h.Acquire(ctx, api.Exclusive)
	if !errors.Is(err, context.DeadlineExceeded) {
		s.Fatalf("Acquire for 300 ms: %v", err)
	}
	s.soon("the end of waiting", func() bool { return s.waiters("f") == 0 })
	s.ok(held.Release(s.ctx))
	_, err = s.file(s.bob, "f").TryAcquire(s.ctx, api.Exclusive) // nobody has it
	s.ok(err)
	s.write(h, "the handle is as good as before")
}

// A handle may be used by several goroutines.
func sharedHandle(s *suite) {
	h := s.file(s.alice, "f")
	var mu sync.Mutex // guards written
	written := map[api.Generation]bool{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				stat, err := h.SetContents(s.ctx, []byte("x"))
				if err != nil {
					s.Error(err)
				}
				mu.Lock()
				written[stat.Content] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if is := s.stat(h).Content; len(written) != 40 || !written[is] || slices.Max(slices.Collect(maps.Keys(written))) != is {
		s.Errorf("40 writes made %d generations, %v; the file is at %d", len(written), written, is)
	}
}
