package e2e

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func nodeCases() map[string]func(*suite) {
	return map[string]func(*suite){
		"whole-file":          wholeFile,
		"compare-and-swap":    compareAndSwap,
		"numbers-only-grow":   numbersOnlyGrow,
		"create":              create,
		"ephemeral-file":      ephemeralFile,
		"ephemeral-directory": ephemeralDirectory,
		"delete":              deleteNode,
		"list":                list,
		"limits":              limits,
		"quota":               quota,
	}
}

// Chubby §2.6: contents are read and written as a whole, with their metadata.
func wholeFile(s *suite) {
	h := s.file(s.alice, "f")
	was := s.write(h, "first")
	is := s.write(h, "second")
	failIf(s, is.Content <= was.Content || is.Size != len("second"), "after a write: %+v, before: %+v", is, was)
	text, stat, err := s.file(s.bob, "f").Contents(s.ctx)
	if err != nil || string(text) != "second" || stat.Content != is.Content || stat.Checksum != is.Checksum {
		s.Errorf("another reads %q, %+v, %v", text, stat, err)
	}
	if again := s.write(h, "first"); again.Checksum != was.Checksum || again.Checksum == is.Checksum {
		s.Error("equal contents have different checksums, or different ones the same")
	}
}

// Chubby §2.6: a write may be conditional on the content generation.
func compareAndSwap(s *suite) {
	h := s.file(s.alice, "f")
	born := s.stat(h)
	first := s.write(h, "first")
	second := s.write(h, "second", client.IfGeneration(first.Content))
	_, err := h.SetContents(s.ctx, []byte("late"), client.IfGeneration(first.Content))
	equal(s, s.fails(err, api.GenerationMismatch).Current, second.Content, "the error says %d")
	equal(s, s.contents(h), "second", "the file says %q")
	s.ok(h.Delete(s.ctx))
	again := s.file(s.alice, "f")
	for _, old := range []api.Generation{born.Content, first.Content, second.Content} {
		_, err := again.SetContents(s.ctx, []byte("late"), client.IfGeneration(old))
		s.fails(err, api.GenerationMismatch) // of a file that is gone
	}
	s.write(again, "third", client.IfGeneration(s.stat(again).Content))
}

// Chubby §2.3: four numbers that only grow; an instance is greater than that of any previous node of the name.
func numbersOnlyGrow(s *suite) {
	h := s.file(s.bob, "f") // bob caches nothing, and so sees the generation of the lock
	first := s.stat(h)
	s.ok(s.acquire(h, api.Exclusive).Release(s.ctx))
	locked := s.stat(h)
	s.ok(s.acquire(h, api.Shared).Release(s.ctx))
	again := s.stat(h)
	if !(first.Lock < locked.Lock && locked.Lock < again.Lock) {
		s.Errorf("lock generations %d, %d, %d", first.Lock, locked.Lock, again.Lock)
	}
	described, err := h.SetACL(s.ctx, api.ACL{Read: "everyone"})
	s.ok(err)
	if described.ACLs <= first.ACLs || described.Content != first.Content {
		s.Errorf("after SetACL: %+v, before: %+v", described, first)
	}
	s.ok(h.Delete(s.ctx))
	if next := s.stat(s.file(s.alice, "f")); next.Instance <= again.Lock || next.Instance <= first.Instance {
		s.Errorf("created again as instance %d, after instance %d and lock generation %d", next.Instance, first.Instance, again.Lock)
	}
}

// Chubby §2.6: Open may or must create, with initial contents and ACL names, and says whether it did.
func create(s *suite) {
	h := s.open(s.alice, "f", client.OpenOptions{Read: true, Write: true, Create: client.NewFile, Contents: []byte("initial"), ACL: api.ACL{Write: "everyone"}})
	if !h.Created() || s.contents(h) != "initial" || s.stat(h).ACL != (api.ACL{Read: "everyone", Write: "everyone", Change: "everyone"}) {
		s.Errorf("created %v, %+v", h.Created(), s.stat(h))
	}
	if again := s.open(s.bob, "f", client.OpenOptions{Read: true, Create: client.File, Contents: []byte("in vain")}); again.Created() || s.contents(again) != "initial" {
		s.Error("Open of a file that was there created it")
	}
	_, err := s.alice.Open(s.ctx, s.path("f"), client.OpenOptions{Read: true, Create: client.NewFile})
	s.fails(err, api.Exists)
	_, err = s.alice.Open(s.ctx, s.path("absent"), client.OpenOptions{Read: true})
	s.fails(err, api.NotFound)
	_, err = s.alice.Open(s.ctx, s.path("no/parent"), client.OpenOptions{Read: true, Create: client.File})
	s.fails(err, api.NotFound)
	_, err = s.alice.Open(s.ctx, s.path("f/below"), client.OpenOptions{Read: true, Create: client.File})
	s.fails(err, api.NotDirectory)
	_, err = s.alice.Open(s.ctx, s.path("g"), client.OpenOptions{Read: true, Create: client.File, ACL: api.ACL{Read: "nobody-wrote-this"}})
	s.fails(err, api.NotFound)
}

// Chubby §2.3: an ephemeral file goes when no client has it open.
func ephemeralFile(s *suite) {
	h := s.open(s.alice, "up", client.OpenOptions{Write: true, Create: client.File, Ephemeral: true})
	other := s.open(s.bob, "up", client.OpenOptions{Read: true})
	s.ok(h.Close(s.ctx))
	failIf(s, !s.stat(other).Ephemeral, "it is not ephemeral")
	s.ok(other.Close(s.ctx))
	s.soon("its removal", func() bool { return s.absent("up") })
}

// Chubby §2.3: and an ephemeral directory only when it is empty besides.
func ephemeralDirectory(s *suite) {
	h := s.open(s.alice, "d", client.OpenOptions{Read: true, Create: client.Directory, Ephemeral: true})
	child := s.file(s.alice, "d/child")
	s.ok(h.Close(s.ctx))
	report(s, errOf(child.Stat(s.ctx)), "the child of a directory that nobody has open")
	s.ok(child.Delete(s.ctx))
	s.soon("its removal", func() bool { return s.absent("d") })
}

// absent reports whether there is no node of that name.
func (s *suite) absent(name string) bool {
	h, err := s.bob.Open(s.ctx, s.path(name), client.OpenOptions{Read: true})
	if err == nil {
		s.ok(h.Close(s.ctx))
	}
	return errors.Is(err, api.NotFound)
}

// Chubby §2.6: a node is deleted only if it has no children; §2.3: any node may be deleted, ephemeral ones too. A lock
// that another holds is in the way (decision 10).
func deleteNode(s *suite) {
	d := s.open(s.alice, "d", client.OpenOptions{Write: true, Create: client.Directory})
	child := s.open(s.bob, "d/child", client.OpenOptions{Write: true, Create: client.File, Ephemeral: true})
	s.fails(d.Delete(s.ctx), api.NotEmpty)
	l := s.acquire(child, api.Exclusive)
	mine := s.open(s.alice, "d/child", client.OpenOptions{Write: true})
	if e := s.fails(mine.Delete(s.ctx), api.LockHeld); len(e.Holders) != 1 || e.Holders[0].Session != s.bob.Session() || e.Holders[0].Principal != "bob" {
		s.Errorf("the holder is %+v", e.Holders)
	}
	s.ok(l.Release(s.ctx))
	s.ok(mine.Delete(s.ctx))
	s.ok(d.Delete(s.ctx))
	failIf(s, !s.absent("d"), "it is still there")
}

// Chubby §2.6: ReadDir returns the children's names and metadata.
func list(s *suite) {
	for i := range 12 {
		s.write(s.file(s.alice, fmt.Sprintf("f%02d", i)), fmt.Sprint(i))
	}
	children, err := s.open(s.bob, "", client.OpenOptions{Read: true}).ReadDir(s.ctx)
	s.ok(err)
	for i, child := range children {
		if child.Path.String() != s.path(fmt.Sprintf("f%02d", i)) || child.Size != len(fmt.Sprint(i)) || child.Content <= child.Instance {
			s.Errorf("child %d is %+v", i, child)
		}
	}
	equal(s, len(children), 12, "%d children")
	_, err = s.file(s.alice, "f00").ReadDir(s.ctx)
	s.fails(err, api.NotDirectory)
}

// Chubby §4.3: files are small, and a larger one is refused before anything happens.
func limits(s *suite) {
	h := s.file(s.alice, "f")
	largest := s.write(h, string(bytes.Repeat([]byte("x"), api.MaxContents)))
	_, err := h.SetContents(s.ctx, make([]byte, api.MaxContents+1))
	s.fails(err, api.TooLarge)
	if stat := s.stat(h); stat.Size != api.MaxContents || stat.Content != largest.Content {
		s.Errorf("afterwards: %+v", stat)
	}
	for _, path := range []string{"/ls/local/../x", "/ls/local//x", "/somewhere", s.dir + "/" + string(bytes.Repeat([]byte("x"), api.MaxComponent+1))} {
		_, err := s.alice.Open(s.ctx, path, client.OpenOptions{Read: true})
		s.fails(err, api.InvalidPath)
	}
	_, err = s.alice.Open(s.ctx, "/ls/elsewhere/x", client.OpenOptions{Read: true})
	s.fails(err, api.WrongCell)
}

// Quotas bound what is below a directory, and never prevent a change that uses less.
func quota(s *suite) {
	s.open(s.alice, "d", client.OpenOptions{Read: true, Create: client.Directory})
	s.ok(s.alice.SetDirectoryQuota(s.ctx, s.path("d"), 2, 10))
	h := s.file(s.alice, "d/one")
	s.file(s.bob, "d/two")
	_, err := s.alice.Open(s.ctx, s.path("d/three"), client.OpenOptions{Read: true, Create: client.File})
	s.fails(err, api.QuotaExceeded)
	s.write(h, "0123456789")
	_, err = h.SetContents(s.ctx, []byte("0123456789x"))
	s.fails(err, api.QuotaExceeded)
	s.write(h, "012")
	s.ok(h.Delete(s.ctx))
	s.file(s.alice, "d/three")
	uses, err := s.alice.Cell().Quotas(s.ctx)
	s.ok(err)
	for _, use := range uses {
		if use.Path == s.path("d") {
			if use.Used != (api.Quota{Nodes: 2}) || use.Allowed != (api.Quota{Nodes: 2, Bytes: 10}) {
				s.Errorf("the directory uses %+v of %+v", use.Used, use.Allowed)
			}
			return
		}
	}
	s.Errorf("the directory is not among %d quotas", len(uses))
}
