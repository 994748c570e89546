package e2e

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

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
	if got := s.stat(h).ACL; got != (api.ACL{Read: "everyone", Write: mine, Change: "everyone"}) {
		s.Errorf("the child's ACL names are %+v", got)
	}
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
	if e := s.fails(err, api.GenerationMismatch); e.Current != is.ACLs {
		s.Errorf("the error says %d, want %d", e.Current, is.ACLs)
	}
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
		if e.Child == "secret" {
			s.Error("a name was shown to somebody who may not read the directory")
		}
		return e.Kind == api.EventChildAdded && e.Child == "public-again"
	})
}
