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

// Chubby §2.4: one exclusive holder at a time; a refusal says who holds the lock and why; a release frees it at once.
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
	failIf(s, next.Token() <= l.Token(), "token %d after %d", next.Token(), l.Token())
}

// Chubby §2.4: any number of shared holders, and no exclusive one beside them.
func shared(s *suite) {
	one, two := s.acquire(s.file(s.alice, "l"), api.Shared), s.acquire(s.file(s.bob, "l"), api.Shared)
	failIf(s, one.Token() != two.Token(), "tokens %d and %d: the lock was free in between", one.Token(), two.Token())
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
	equal(s, s.contents(h), "all the same", "it says %q")
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
			report(s, l.Release(s.ctx))
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

// Chubby §2.4: a sequencer names the lock, its mode and its generation, and is valid while the lock is so held.
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

// Chubby §2.6: with SetSequencer all later operations on the handle fail once the sequencer is not valid any more.
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
	equal(s, s.contents(s.file(s.bob, "data")), "under the lock", "it says %q")
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
	equal(s, s.contents(h), "mine", "it says %q")
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
	failIf(s, next.Token() <= l.Token(), "token %d after %d", next.Token(), l.Token())
	failIf(s, l.Err() == nil, "the holder that failed believes in its lock still")
}

func aclCases() map[string]func(*suite) {
	return map[string]func(*suite){
		"inherited":        aclInherited,
		"three-rights":     threeRights,
		"lists-are-files":  listsAreFiles,
		"inclusion":        aclInclusion,
		"checked-at-open":  checkedAtOpen,
		"create-in":        createIn,
		"set-acl":          setACL,
		"path-independent": pathIndependent,
		"events-for-those": eventsForReaders,
	}
}

// acl creates a list that only this case uses, and returns its name.
func (s *suite) acl(name, lines string) string {
	s.Helper()
	name = s.dir[len("/ls/local/"):] + "-" + name
	s.write(s.open(s.alice, "/ls/local/acl/"+name, client.OpenOptions{Write: true, Create: client.File}), lines)
	return name
}

// Chubby §2.3: a node inherits the ACL names of its parent.
func aclInherited(s *suite) {
	mine := s.acl("mine", "alice\n")
	s.open(s.alice, "d", client.OpenOptions{Read: true, Create: client.Directory, ACL: api.ACL{Write: mine}})
	h := s.file(s.alice, "d/f")
	equal(s, s.stat(h).ACL, (api.ACL{Read: "everyone", Write: mine, Change: "everyone"}), "the child's ACL names are %+v")
	_, err := s.bob.Open(s.ctx, s.path("d/f"), client.OpenOptions{Write: true})
	s.fails(err, api.PermissionDenied)
	s.open(s.bob, "d/f", client.OpenOptions{Read: true})
}

// Chubby §2.3: reading, writing and changing the ACL names are three rights;
// locking, in either mode, needs the second (§2.4).
func threeRights(s *suite) {
	alice, bob := s.acl("alice", "alice\n"), s.acl("bob", "bob\n")
	s.open(s.alice, "f", client.OpenOptions{Read: true, Create: client.File, ACL: api.ACL{Read: alice, Write: bob, Change: alice}})
	for _, may := range []struct {
		who     *client.Client
		opts    client.OpenOptions
		allowed bool
	}{
		{s.alice, client.OpenOptions{Read: true}, true},
		{s.bob, client.OpenOptions{Read: true}, false},
		{s.alice, client.OpenOptions{Write: true}, false},
		{s.bob, client.OpenOptions{Write: true}, true},
		{s.alice, client.OpenOptions{ChangeACL: true}, true},
		{s.bob, client.OpenOptions{ChangeACL: true}, false},
		{s.bob, client.OpenOptions{Write: true, Read: true}, false},
	} {
		_, err := may.who.Open(s.ctx, s.path("f"), may.opts)
		if may.allowed {
			s.ok(err)
		} else {
			s.fails(err, api.PermissionDenied)
		}
	}
	l := s.acquire(s.open(s.bob, "f", client.OpenOptions{Write: true}), api.Shared)
	s.ok(l.Release(s.ctx))
}

// Chubby §2.3: lists are files, so a change of the file changes whom the list admits; a
// list that does not exist admits nobody.
func listsAreFiles(s *suite) {
	name := s.acl("list", "# nobody yet\n")
	s.open(s.alice, "f", client.OpenOptions{Read: true, Create: client.File, ACL: api.ACL{Write: name}})
	try := func() error {
		_, err := s.bob.Open(s.ctx, s.path("f"), client.OpenOptions{Write: true})
		return err
	}
	s.fails(try(), api.PermissionDenied)
	file := s.open(s.alice, "/ls/local/acl/"+name, client.OpenOptions{Write: true})
	s.write(file, "carol\nbob\n")
	s.ok(try()) // the very next one
	list := s.open(s.bob, "/ls/local/acl/"+name, client.OpenOptions{Read: true})
	if got, _, err := list.Contents(s.ctx); err != nil || string(got) != "carol\nbob\n" {
		s.Errorf("another client reads the list as %q (%v)", got, err)
	}
	s.write(file, "*\n")
	s.ok(try())
	s.write(file, "carol\n")
	s.fails(try(), api.PermissionDenied)
	s.ok(file.Delete(s.ctx))
	s.fails(try(), api.PermissionDenied)
}

// Groups are lists that others include; a list that includes itself admits nobody by that.
func aclInclusion(s *suite) {
	inner := s.acl("inner", "bob\n")
	outer := s.acl("outer", "@"+inner+"\n")
	loop := s.acl("loop", "@"+s.dir[len("/ls/local/"):]+"-loop\n@no-such-list\n")
	s.open(s.alice, "f", client.OpenOptions{Read: true, Create: client.File, ACL: api.ACL{Write: outer, Read: loop}})
	s.open(s.bob, "f", client.OpenOptions{Write: true})
	_, err := s.alice.Open(s.ctx, s.path("f"), client.OpenOptions{Write: true})
	s.fails(err, api.PermissionDenied)
	_, err = s.bob.Open(s.ctx, s.path("f"), client.OpenOptions{Read: true})
	s.fails(err, api.PermissionDenied)
}

// Chubby §2.3: rights are checked when a handle is opened, not at each use; an
// Open after an acknowledged change obeys it.
func checkedAtOpen(s *suite) {
	alice := s.acl("alice", "alice\n")
	h := s.file(s.bob, "f")
	_, err := s.open(s.alice, "f", client.OpenOptions{ChangeACL: true}).SetACL(s.ctx, api.ACL{Write: alice})
	s.ok(err)
	s.write(h, "opened before")
	_, err = s.bob.Open(s.ctx, s.path("f"), client.OpenOptions{Write: true})
	s.fails(err, api.PermissionDenied)
}

// Chubby §2.3: the rights on a node depend on that node, not on the directories above it.
func pathIndependent(s *suite) {
	alice := s.acl("alice", "alice\n")
	s.open(s.alice, "d", client.OpenOptions{Read: true, Create: client.Directory, ACL: api.ACL{Read: alice}})
	s.open(s.alice, "d/f", client.OpenOptions{Read: true, Create: client.File, ACL: api.ACL{Read: "everyone"}})
	_, err := s.bob.Open(s.ctx, s.path("d"), client.OpenOptions{Read: true})
	s.fails(err, api.PermissionDenied)
	s.open(s.bob, "d/f", client.OpenOptions{Read: true})
}

// Creating in a directory needs the right to write it.
func createIn(s *suite) {
	alice := s.acl("alice", "alice\n")
	s.open(s.alice, "d", client.OpenOptions{Read: true, Create: client.Directory, ACL: api.ACL{Write: alice}})
	_, err := s.bob.Open(s.ctx, s.path("d/f"), client.OpenOptions{Read: true, Create: client.File})
	s.fails(err, api.PermissionDenied)
	s.file(s.alice, "d/f")
}

// Chubby §2.6: SetACL, as a compare-and-swap on the ACL generation.
func setACL(s *suite) {
	alice := s.acl("alice", "alice\n")
	h := s.open(s.alice, "f", client.OpenOptions{Read: true, ChangeACL: true, Create: client.File})
	was := s.stat(h)
	is, err := h.SetACL(s.ctx, api.ACL{Write: alice}, client.IfGeneration(was.ACLs))
	s.ok(err)
	if is.ACL != (api.ACL{Read: "everyone", Write: alice, Change: "everyone"}) || is.ACLs <= was.ACLs {
		s.Errorf("after SetACL: %+v", is)
	}
	_, err = h.SetACL(s.ctx, api.ACL{Write: "everyone"}, client.IfGeneration(was.ACLs))
	equal(s, s.fails(err, api.GenerationMismatch).Current, is.ACLs, "the error says %d")
	_, err = h.SetACL(s.ctx, api.ACL{Read: "nobody-wrote-this"})
	s.fails(err, api.NotFound)
}

// An event never shows a name that its reader may not read.
func eventsForReaders(s *suite) {
	alice := s.acl("alice", "alice\n")
	s.open(s.alice, "d", client.OpenOptions{Read: true, Create: client.Directory})
	watching := s.open(s.bob, "d", client.OpenOptions{Read: true, Events: []api.EventKind{api.EventChildAdded}})
	s.file(s.alice, "d/public")
	s.expect(watching, func() bool { return true }, func(e api.Event) bool { return e.Kind == api.EventChildAdded && e.Child == "public" })
	d := s.open(s.alice, "d", client.OpenOptions{ChangeACL: true})
	_, err := d.SetACL(s.ctx, api.ACL{Read: alice})
	s.ok(err)
	s.file(s.alice, "d/secret")
	_, err = d.SetACL(s.ctx, api.ACL{Read: "everyone"})
	s.ok(err)
	s.file(s.alice, "d/public-again")
	s.expect(watching, func() bool { return true }, func(e api.Event) bool {
		failIf(s, e.Child == "secret", "a name was shown to somebody who may not read the directory")
		return e.Kind == api.EventChildAdded && e.Child == "public-again"
	})
}
