package e2e

import (
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func lockCases() map[string]func(*suite) {
	return map[string]func(*suite){
		"exclusive":           exclusive,
		"shared":              shared,
		"advisory":            advisory,
		"no-overtaking":       noOvertaking,
		"not-recursive":       notRecursive,
		"any-node":            anyNode,
		"sequencer":           sequencerOfALock,
		"set-sequencer":       setSequencer,
		"conditional-write":   conditionalWrite,
		"failed-holder-delay": failedHolderDelay,
	}
}

// Chubby §2.4: one exclusive holder at a time; a refusal says who holds the lock and why; a
// release frees it at once.
func exclusive(s *suite) {
	h := s.open(s.alice, "l", client.OpenOptions{Write: true, Create: client.File, LockDelay: time.Minute})
	l, err := h.Acquire(s.ctx, api.Exclusive, client.Reason("to see"))
	s.ok(err)
	other := s.file(s.bob, "l")
	for _, mode := range []api.LockMode{api.Exclusive, api.Shared} {
		_, err := other.TryAcquire(s.ctx, mode)
		e := s.fails(err, api.LockHeld)
		if len(e.Holders) != 1 || e.Holders[0].Principal != "alice" || e.Holders[0].Reason != "to see" || e.Holders[0].PID == 0 || e.Holders[0].SinceUnix == 0 {
			s.Errorf("held by %+v", e.Holders)
		}
	}
	s.ok(l.Release(s.ctx))
	next, err := other.TryAcquire(s.ctx, api.Exclusive) // no lock-delay after a release
	s.ok(err)
	if next.Token() <= l.Token() {
		s.Errorf("token %d after %d", next.Token(), l.Token())
	}
}

// Chubby §2.4: any number of shared holders, and no exclusive one beside them.
func shared(s *suite) {
	one, two := s.acquire(s.file(s.alice, "l"), api.Shared), s.acquire(s.file(s.bob, "l"), api.Shared)
	if one.Token() != two.Token() {
		s.Errorf("tokens %d and %d: the lock was free in between", one.Token(), two.Token())
	}
	_, err := s.file(s.alice, "l").TryAcquire(s.ctx, api.Exclusive)
	s.fails(err, api.LockHeld)
	s.ok(one.Release(s.ctx))
	_, err = s.file(s.alice, "l").TryAcquire(s.ctx, api.Exclusive)
	s.fails(err, api.LockHeld)
	s.ok(two.Release(s.ctx))
	s.acquire(s.file(s.alice, "l"), api.Exclusive)
}

// Chubby §2.4: locks are advisory: they conflict with other locks only.
func advisory(s *suite) {
	s.acquire(s.file(s.alice, "l"), api.Exclusive)
	h := s.file(s.bob, "l")
	s.write(h, "all the same")
	if got := s.contents(h); got != "all the same" {
		s.Errorf("it says %q", got)
	}
}

// Readers do not overtake an earlier writer (decision 8).
func noOvertaking(s *suite) {
	first := s.acquire(s.file(s.alice, "l"), api.Shared)
	order := make(chan string, 2)
	var holding sync.WaitGroup
	wait := func(name string, c *client.Client, mode api.LockMode) {
		h := s.file(c, "l")
		holding.Go(func() {
			l, err := h.Acquire(s.ctx, mode)
			if err != nil {
				order <- err.Error()
				return
			}
			order <- name
			if err := l.Release(s.ctx); err != nil {
				s.Error(err)
			}
		})
	}
	wait("writer", s.bob, api.Exclusive)
	s.soon("a writer waiting", func() bool { return s.waiters("l") == 1 })
	wait("reader", s.alice, api.Shared)
	s.soon("both waiting", func() bool { return s.waiters("l") == 2 })
	s.ok(first.Release(s.ctx))
	if one, two := <-order, <-order; one != "writer" || two != "reader" {
		s.Errorf("first came %q, then %q", one, two)
	}
	holding.Wait()
}

// Chubby §2.3: any node is a reader-writer lock, a directory too.
func anyNode(s *suite) {
	d := s.open(s.alice, "d", client.OpenOptions{Write: true, Create: client.Directory})
	l := s.acquire(d, api.Exclusive)
	s.file(s.bob, "d/child") // advisory here as well
	_, err := s.open(s.bob, "d", client.OpenOptions{Write: true}).TryAcquire(s.ctx, api.Shared)
	s.fails(err, api.LockHeld)
	s.ok(l.Release(s.ctx))
}

// A handle that holds a lock cannot take it again (decision 9).
func notRecursive(s *suite) {
	h := s.file(s.alice, "l")
	l := s.acquire(h, api.Exclusive)
	_, err := h.Acquire(s.ctx, api.Exclusive)
	s.fails(err, api.LockHeld)
	s.ok(l.Release(s.ctx))
}

// Chubby §2.4: a sequencer names the lock, its mode and its generation, and is
// valid while the lock is so held.
func sequencerOfALock(s *suite) {
	h := s.file(s.bob, "l") // bob caches nothing, and so sees the generation of the lock
	l := s.acquire(h, api.Exclusive)
	seq := l.Sequencer()
	if seq.Path.String() != s.path("l") || seq.Mode != api.Exclusive || seq.Generation != s.stat(h).Lock || seq.Token() != l.Token() {
		s.Errorf("the sequencer is %+v, the node %+v", seq, s.stat(h))
	}
	s.ok(s.bob.CheckSequencer(s.ctx, seq.String()))
	s.ok(l.Release(s.ctx))
	s.fails(s.bob.CheckSequencer(s.ctx, seq.String()), api.BadSequencer)
	s.acquire(h, api.Exclusive)
	s.fails(s.bob.CheckSequencer(s.ctx, seq.String()), api.BadSequencer)
}

// Chubby §2.6: with SetSequencer all later operations on the handle fail once
// the sequencer is not valid any more.
func setSequencer(s *suite) {
	l := s.acquire(s.file(s.alice, "l"), api.Exclusive)
	h := s.file(s.bob, "data")
	s.ok(h.SetSequencer(s.ctx, l.Sequencer()))
	s.write(h, "under the lock")
	s.ok(l.Release(s.ctx))
	_, err := h.SetContents(s.ctx, []byte("too late"))
	s.fails(err, api.BadSequencer)
	_, _, err = h.Contents(s.ctx)
	s.fails(err, api.BadSequencer)
	_, err = h.TryAcquire(s.ctx, api.Exclusive)
	s.fails(err, api.BadSequencer)
	s.fails(h.Delete(s.ctx), api.BadSequencer)
	s.fails(h.SetSequencer(s.ctx, l.Sequencer()), api.BadSequencer)
	s.ok(h.Close(s.ctx))
	if got := s.contents(s.file(s.bob, "data")); got != "under the lock" {
		s.Errorf("it says %q", got)
	}
}

// A write may be conditional on a sequencer, of any lock of the cell.
func conditionalWrite(s *suite) {
	l := s.acquire(s.file(s.alice, "l"), api.Exclusive)
	h := s.file(s.alice, "data")
	s.write(h, "mine", client.IfSequencer(l.Sequencer()))
	s.ok(l.Release(s.ctx))
	next := s.acquire(s.file(s.bob, "l"), api.Exclusive)
	_, err := h.SetContents(s.ctx, []byte("stale"), client.IfSequencer(l.Sequencer()))
	s.fails(err, api.BadSequencer)
	s.fails(h.Delete(s.ctx, client.IfSequencer(l.Sequencer())), api.BadSequencer)
	_, err = h.SetACL(s.ctx, api.ACL{Read: "everyone"}, client.IfSequencer(l.Sequencer()))
	s.fails(err, api.BadSequencer)
	if got := s.contents(h); got != "mine" {
		s.Errorf("it says %q", got)
	}
	s.write(h, "theirs", client.IfSequencer(next.Sequencer()))
}

// Chubby §2.4: if a holder fails, nobody may claim the lock for the lock-delay.
func failedHolderDelay(s *suite) {
	const lease, delay = time.Second, 2 * time.Second
	var wire cable
	gone := s.w.clientFor(s.T, client.Config{As: "carol", Lease: lease, Dialer: wire.dial})
	h, err := gone.Open(s.ctx, s.path("l"), client.OpenOptions{Write: true, Create: client.File, LockDelay: delay})
	s.ok(err)
	l, err := h.Acquire(s.ctx, api.Exclusive)
	s.ok(err)
	other := s.file(s.bob, "l")
	began := time.Now()
	wire.cut()
	next, err := other.Acquire(s.ctx, api.Exclusive)
	s.ok(err)
	if took := time.Since(began); took < delay {
		s.Errorf("the lock of a holder that failed was had after %v; its lock-delay is %v", took, delay)
	}
	if next.Token() <= l.Token() {
		s.Errorf("token %d after %d", next.Token(), l.Token())
	}
	if l.Err() == nil {
		s.Error("the holder that failed believes in its lock still")
	}
}
