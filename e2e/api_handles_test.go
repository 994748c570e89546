package e2e

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
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
	equal(s, s.contents(s.file(s.bob, "f")), "new", "the new file says %q")
}

// Chubby §2.6: Open is the only call that takes a name, which may be relative to the handle of a directory.
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

// Chubby §2.6: Poison fails outstanding and later operations without freeing the handle.
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

// Chubby §4.4, the authors' regret: one call that blocks can be withdrawn without giving up the handle.
func cancelOneCall(s *suite) {
	held := s.acquire(s.file(s.bob, "f"), api.Exclusive)
	h := s.file(s.alice, "f")
	ctx, cancel := context.WithTimeout(s.ctx, 300*time.Millisecond)
	defer cancel()
	_, err := h.Acquire(ctx, api.Exclusive)
	stopIf(s, !errors.Is(err, context.DeadlineExceeded), "Acquire for 300 ms: %v", err)
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
				report(s, err)
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
		report(s, err)
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
	report(s, s.alice.Err(), "the session is gone")
}

// With now the lock is free at once.
func breakNow(s *suite) {
	held := s.acquire(s.file(s.alice, "l"), api.Exclusive)
	s.ok(s.bob.BreakLock(s.ctx, s.path("l"), "now", true))
	l, err := s.file(s.bob, "l").TryAcquire(s.ctx, api.Exclusive)
	s.ok(err)
	failIf(s, l.Token() <= held.Token(), "token %d after %d", l.Token(), held.Token())
	<-held.Context().Done()
	_ = held.Release(s.ctx) // it says that the lock is lost
	s.fails(s.alice.BreakLock(s.ctx, s.path("absent"), "why not", false), api.NotFound)
}

// A holder that is cut off keeps its lock until its lease and lock-delay have ended; by then it knows that.
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
	failIf(s, held.Context().Err() == nil, "the holder believes in its lock still")
}

// A session that is terminated: no call of it is done any more; what it held is free when it has released it.
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
	failIf(s, held.Context().Err() == nil, "the lock's context outlived its session")
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
