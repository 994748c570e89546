package e2e

import (
	"errors"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func lossCases() map[string]func(*suite) {
	return map[string]func(*suite){
		"break":            breakLock,
		"break-now":        breakNow,
		"break-cut-off":    breakCutOff,
		"end-session":      endSession,
		"end-cut-off":      endCutOff,
		"needs-the-rights": lossNeedsRights,
	}
}

// A broken lock: its sequencer is invalid at once, its holder is told why, and the next client
// has the lock when the holder has released it (decision 10).
func breakLock(s *suite) {
	held := s.acquire(s.file(s.alice, "l"), api.Exclusive)
	next := make(chan *client.Lock, 1)
	waiting := s.file(s.bob, "l")
	go func() {
		l, err := waiting.Acquire(s.ctx, api.Exclusive)
		if err != nil {
			s.Error(err)
		}
		next <- l
	}()
	s.soon("waiting", func() bool { return s.waiters("l") == 1 })
	s.ok(s.bob.BreakLock(s.ctx, s.path("l"), "it hangs", false))
	s.fails(s.bob.CheckSequencer(s.ctx, held.Sequencer().String()), api.BadSequencer)
	<-held.Context().Done()
	if err := held.Err(); !errors.Is(err, client.LockTaken) || !strings.Contains(err.Error(), "it hangs") {
		s.Errorf("the holder hears: %v", err)
	}
	select {
	case <-next:
		s.Fatal("the next has the lock before the holder has let go")
	case <-time.After(500 * time.Millisecond):
	}
	if list, err := s.bob.Cell().Locks(s.ctx, s.path("l")); err != nil || len(list) != 1 || list[0].Revoked != "broken by bob: it hangs" {
		s.Errorf("it is listed as %+v, %v", list, err)
	}
	_ = held.Release(s.ctx) // it says that the lock is lost
	if l := <-next; l != nil && l.Token() <= held.Token() {
		s.Errorf("token %d after %d", l.Token(), held.Token())
	}
	s.stat(waiting)
	if s.alice.Err() != nil {
		s.Errorf("the session is gone: %v", s.alice.Err())
	}
}

// With now the lock is free at once.
func breakNow(s *suite) {
	held := s.acquire(s.file(s.alice, "l"), api.Exclusive)
	s.ok(s.bob.BreakLock(s.ctx, s.path("l"), "now", true))
	l, err := s.file(s.bob, "l").TryAcquire(s.ctx, api.Exclusive)
	s.ok(err)
	if l.Token() <= held.Token() {
		s.Errorf("token %d after %d", l.Token(), held.Token())
	}
	<-held.Context().Done()
	_ = held.Release(s.ctx) // it says that the lock is lost
	s.fails(s.alice.BreakLock(s.ctx, s.path("absent"), "why not", false), api.NotFound)
}

// A holder that is cut off keeps its lock until its lease and lock-delay have ended; by then it
// knows that.
func breakCutOff(s *suite) {
	var wire cable
	gone := s.w.clientFor(s.T, client.Config{As: "carol", Lease: time.Second, Dialer: wire.dial})
	h, err := gone.Open(s.ctx, s.path("l"), client.OpenOptions{Write: true, Create: client.File, LockDelay: 2 * time.Second})
	s.ok(err)
	held, err := h.Acquire(s.ctx, api.Exclusive)
	s.ok(err)
	wire.cut()
	began := time.Now()
	if err := s.bob.BreakLock(s.ctx, s.path("l"), "gone", false); !errors.Is(err, api.NotHeld) { // it came after the lease and the lock-delay
		s.ok(err)
	}
	s.fails(s.bob.CheckSequencer(s.ctx, held.Sequencer().String()), api.BadSequencer)
	s.acquire(s.file(s.bob, "l"), api.Exclusive)
	if took := time.Since(began); took < 2*time.Second {
		s.Errorf("the lock was had after %v; the lock-delay alone is 2 s", took)
	}
	if held.Context().Err() == nil {
		s.Error("the holder believes in its lock still")
	}
}

// A session that is terminated: no call of it is done any more; what it held is free when it
// has released it.
func endSession(s *suite) {
	carol := s.w.clientFor(s.T, client.Config{As: "carol"})
	h := s.file(carol, "l")
	held := s.acquire(h, api.Exclusive)
	s.open(carol, "up", client.OpenOptions{Write: true, Create: client.File, Ephemeral: true})
	s.ok(s.bob.EndSession(s.ctx, carol.Session(), "maintenance"))
	s.fails(s.bob.CheckSequencer(s.ctx, held.Sequencer().String()), api.BadSequencer)
	<-carol.Done()
	if err := carol.Err(); !errors.Is(err, client.EndedByCell) || !strings.Contains(err.Error(), "maintenance") {
		s.Errorf("the session hears: %v", err)
	}
	if held.Context().Err() == nil {
		s.Error("the lock's context outlived its session")
	}
	_, err := h.Stat(s.ctx)
	s.fails(err, api.SessionExpired)
	s.ok(h.Close(s.ctx)) // releases the lock
	s.acquire(s.file(s.bob, "l"), api.Exclusive)
	s.soon("the end of its ephemeral file", func() bool { return s.absent("up") })
	s.fails(s.bob.EndSession(s.ctx, carol.Session(), "again"), api.NotFound)
}

// And if that session is cut off, when its lease and lock-delay have ended.
func endCutOff(s *suite) {
	var wire cable
	gone := s.w.clientFor(s.T, client.Config{As: "carol", Lease: time.Second, Dialer: wire.dial})
	h, err := gone.Open(s.ctx, s.path("l"), client.OpenOptions{Write: true, Create: client.File, LockDelay: 2 * time.Second})
	s.ok(err)
	_, err = h.Acquire(s.ctx, api.Exclusive)
	s.ok(err)
	wire.cut()
	began := time.Now()
	if err := s.bob.EndSession(s.ctx, gone.Session(), "gone"); !errors.Is(err, api.NotFound) { // it came after the lease
		s.ok(err)
	}
	s.acquire(s.file(s.bob, "l"), api.Exclusive)
	if took := time.Since(began); took < 2*time.Second {
		s.Errorf("the lock was had after %v; the lock-delay alone is 2 s", took)
	}
}

// Taking a lock away needs the right to change the node's ACL.
func lossNeedsRights(s *suite) {
	alice := s.acl("alice", "alice\n")
	h := s.open(s.alice, "l", client.OpenOptions{Write: true, Create: client.File, ACL: api.ACL{Change: alice}})
	l := s.acquire(h, api.Exclusive)
	s.fails(s.bob.BreakLock(s.ctx, s.path("l"), "why not", false), api.PermissionDenied)
	s.fails(s.bob.BreakLock(s.ctx, s.path("l"), "why not", true), api.PermissionDenied)
	s.ok(s.bob.CheckSequencer(s.ctx, l.Sequencer().String()))
}
