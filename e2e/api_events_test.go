package e2e

import (
	"fmt"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func eventCases() map[string]func(*suite) {
	return map[string]func(*suite){
		"contents-modified":    contentsModified,
		"children":             childEvents,
		"in-order":             eventsInOrder,
		"ephemeral-child":      ephemeralChild,
		"lock-acquired":        lockAcquired,
		"lock-vacant":          lockVacant,
		"conflicting-lock":     conflictingLock,
		"handle-invalid":       handleInvalid,
		"only-what-was-wanted": onlyWhatWasWanted,
	}
}

// watch opens a node for events.
func (s *suite) watch(c *client.Client, name string, kinds ...api.EventKind) *client.Handle {
	s.Helper()
	return s.open(c, name, client.OpenOptions{Read: true, Write: true, Create: client.File, Events: kinds})
}

// next returns the handle's next event, of any kind.
func (s *suite) next(h *client.Handle) api.Event {
	s.Helper()
	e, err := h.Next(s.ctx)
	noErr(s, err, "next event")
	if e.Path != h.Path() && e.Kind != api.EventMasterFailedOver {
		s.Errorf("%v is about %s, want %s", e.Kind, e.Path, h.Path())
	}
	return e
}

// expect waits for an event that fits. A fail-over may lose it (Chubby §2.5); then seen must be true: the change can be
// read. For an event without a change that can be read, seen is always true.
func (s *suite) expect(h *client.Handle, seen func() bool, wanted func(api.Event) bool) {
	s.Helper()
	for {
		e := s.next(h)
		if e.Kind == api.EventMasterFailedOver && seen() || wanted(e) {
			return
		}
	}
}

// Chubby §2.5: file contents modified; delivered after the change, so that a client that
// reads then sees the change, or a newer one.
func contentsModified(s *suite) {
	h := s.watch(s.bob, "f", api.EventContentsModified)
	author := s.file(s.alice, "f")
	for i := range 5 {
		stat := s.write(author, fmt.Sprint(i))
		read := func() bool { return s.contents(h) == fmt.Sprint(i) }
		s.expect(h, read, func(e api.Event) bool {
			if e.Kind == api.EventContentsModified && e.Generation == stat.Content && !read() {
				s.Errorf("the event of write %d came before the write", i)
			}
			return e.Kind == api.EventContentsModified && e.Generation == stat.Content
		})
	}
}

// Chubby §2.5: child node added, removed or modified.
func childEvents(s *suite) {
	d := s.open(s.bob, "", client.OpenOptions{Read: true, Events: []api.EventKind{api.EventChildAdded, api.EventChildModified, api.EventChildRemoved}})
	child := s.file(s.alice, "child")
	is := func(kind api.EventKind) func(api.Event) bool {
		return func(e api.Event) bool { return e.Kind == kind && e.Child == "child" }
	}
	s.expect(d, func() bool { return !s.absent("child") }, is(api.EventChildAdded))
	stat := s.write(child, "x")
	s.expect(d, func() bool { return s.stat(child).Content == stat.Content }, is(api.EventChildModified))
	s.ok(child.Delete(s.ctx))
	s.expect(d, func() bool { return s.absent("child") }, is(api.EventChildRemoved))
}

// Events come in the order of the changes, each once, unless the master has failed over.
func eventsInOrder(s *suite) {
	h := s.watch(s.bob, "f", api.EventContentsModified)
	author := s.file(s.alice, "f")
	var writes []api.Generation
	for range 50 {
		writes = append(writes, s.write(author, "x").Content)
	}
	over, last := false, writes[len(writes)-1]
	for len(writes) > 0 {
		want, e := writes[0], s.next(h)
		at := slices.Index(writes, e.Generation)
		switch {
		case e.Kind == api.EventMasterFailedOver:
			over = true
			if s.stat(h).Content == last {
				return
			}
		case e.Kind != api.EventContentsModified || at < 0 || at > 0 && !over:
			s.Fatalf("%v of generation %d, want %d", e.Kind, e.Generation, want)
		default:
			writes = writes[at+1:]
		}
	}
}

// Chubby §2.5: so ephemeral children can be watched without holding them open.
func ephemeralChild(s *suite) {
	d := s.open(s.bob, "", client.OpenOptions{Read: true, Events: []api.EventKind{api.EventChildAdded, api.EventChildRemoved}})
	up := s.open(s.alice, "up", client.OpenOptions{Write: true, Create: client.File, Ephemeral: true})
	s.expect(d, func() bool { return !s.absent("up") }, func(e api.Event) bool { return e.Kind == api.EventChildAdded && e.Child == "up" })
	s.ok(up.Close(s.ctx))
	s.expect(d, func() bool { return s.absent("up") }, func(e api.Event) bool { return e.Kind == api.EventChildRemoved && e.Child == "up" })
}

// Chubby §2.5: lock acquired: a primary has been elected.
func lockAcquired(s *suite) {
	h := s.watch(s.bob, "l", api.EventLockAcquired)
	l := s.acquire(s.file(s.alice, "l"), api.Exclusive)
	s.expect(h, func() bool { return s.stat(h).Lock == l.Sequencer().Generation },
		func(e api.Event) bool {
			return e.Kind == api.EventLockAcquired && e.Generation == l.Sequencer().Generation
		})
}

// Beyond Chubby §2.5: an event says that a lock has no holder any more, so that clients need not poll for that.
func lockVacant(s *suite) {
	h := s.watch(s.bob, "l", api.EventLockVacant)
	l := s.acquire(s.file(s.alice, "l"), api.Exclusive)
	s.ok(l.Release(s.ctx))
	s.expect(h, func() bool { return true }, func(e api.Event) bool {
		return e.Kind == api.EventLockVacant && e.Generation == l.Sequencer().Generation
	})
}

// Chubby §2.5: a conflicting lock request from another client.
func conflictingLock(s *suite) {
	h := s.watch(s.alice, "l", api.EventConflictingLock)
	l := s.acquire(h, api.Exclusive)
	other := s.file(s.bob, "l")
	_, err := other.TryAcquire(s.ctx, api.Shared)
	s.fails(err, api.LockHeld)
	s.expect(h, func() bool { return true }, func(e api.Event) bool { return e.Kind == api.EventConflictingLock })
	go func() {
		if next, err := other.Acquire(s.ctx, api.Exclusive); err == nil {
			_ = next.Release(s.ctx) // the case may be over
		}
	}()
	s.soon("waiting", func() bool { return s.waiters("l") == 1 })
	s.expect(h, func() bool { return true }, func(e api.Event) bool { return e.Kind == api.EventConflictingLock })
	s.ok(l.Release(s.ctx))
}

// Chubby §2.5: the handle has become invalid.
func handleInvalid(s *suite) {
	h := s.watch(s.bob, "f", api.EventContentsModified)
	s.ok(s.file(s.alice, "f").Delete(s.ctx))
	s.expect(h, func() bool { return false }, func(e api.Event) bool {
		return e.Kind == api.EventHandleInvalid && e.Reason == api.ByDeletion
	})
	_, err := h.Stat(s.ctx)
	s.fails(err, api.HandleClosed)
}

// A handle gets the events it was opened for; those of contents and children are for handles that may read.
func onlyWhatWasWanted(s *suite) {
	h := s.watch(s.bob, "f", api.EventLockAcquired)
	author := s.file(s.alice, "f")
	s.write(author, "not wanted")
	l := s.acquire(author, api.Exclusive)
	s.expect(h, func() bool { return true }, func(e api.Event) bool {
		failIf(s, e.Kind == api.EventContentsModified, "it was not opened for contents-modified")
		return e.Kind == api.EventLockAcquired
	})
	s.ok(l.Release(s.ctx))
	_, err := s.bob.Open(s.ctx, s.path("f"), client.OpenOptions{Write: true, Events: []api.EventKind{api.EventContentsModified}})
	s.fails(err, api.InvalidArgument)
	_, err = s.bob.Open(s.ctx, s.path("f"), client.OpenOptions{Read: true, Events: []api.EventKind{api.EventMasterFailedOver}})
	s.fails(err, api.InvalidArgument)
}
