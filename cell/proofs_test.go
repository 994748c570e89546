package cell_test

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc64"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/sequencer"
)

// A client without any right to a lock makes up its sequencer, with the right token. The cell calls it invalid, whether the lock is held or its file
// is absent, and a guard with a session does not let it in. That of the holder is valid in anybody's hands, and goes on being so under another master.
func TestInventedSequencers(t *testing.T) {
	inTLSCell(t, 3, func(t *testing.T, ctx context.Context, c tlsCell) {
		alice, server, mallory := c.as(t, ctx, "alice"), c.as(t, ctx, "server"), c.as(t, ctx, "mallory")
		for name, lines := range map[string]string{"a": "alice\n", "r": "alice\nserver\n"} {
			noErr(t, errOf(alice.Put(ctx, "/ls/local/acl/"+name, []byte(lines))))
		}
		dir := must(alice.Open(ctx, "/ls/local/private", client.OpenOptions{Write: true, Create: client.Directory, ACL: api.ACL{Read: "r", Write: "a", Change: "a"}}))(t)
		c.clients.check(dir.Close(ctx))
		held := acquire(t, ctx, open(t, ctx, alice, "/ls/local/private/primary", 0)).Sequencer()
		invented := held
		invented.Proof = sequencer.Proof{}
		ask := func(s sequencer.Sequencer) string {
			t.Helper()
			err := mallory.CheckSequencer(ctx, s.String())
			if err == nil {
				return "valid"
			}
			return err.Error()
		}
		absent := invented
		absent.Path = api.MustParsePath("/ls/local/private/absent")
		first := ask(invented)
		guessed := invented
		guessed.Generation--
		if first == "valid" || ask(absent) != first || ask(guessed) != first {
			t.Errorf("of a lock that is held: %s; of none: %s; of another token: %s", first, ask(absent), ask(guessed))
		}
		equal(t, ask(held), "valid", "the holder's own sequencer, shown by another: %s")
		checker := must(server.CachingChecker(client.MaxCheckAge))(t)
		defer checker.Close()
		store := must(sequencer.OpenFileStore(filepath.Join(t.TempDir(), "tokens")))(t)
		defer store.Close()
		guard := must(sequencer.NewGuard(ctx, sequencer.GuardConfig{Locks: []api.Path{held.Path}, Store: store, Checker: checker}))(t)
		refused := func(when string) {
			t.Helper()
			if _, err := guard.Check(ctx, invented.String()); api.CodeOf(err) != api.BadSequencer {
				t.Errorf("%s a guard with a session lets an invented sequencer in: %v", when, err)
			}
		}
		refused("at first")
		noErr(t, errOf(guard.Check(ctx, held.String())))
		refused("while it knows that the right one is valid")
		c.FailOver()
		equal(t, ask(held), "valid", "under another master: %s")
	})
}

// A reader of a directory is told that a file in it was written only if it may read the file; and of names that come and go.
func TestChildEventsNeedTheRightToTheChild(t *testing.T) {
	inTLSCell(t, 1, func(t *testing.T, ctx context.Context, c tlsCell) {
		alice, bob := c.as(t, ctx, "alice"), c.as(t, ctx, "bob")
		noErr(t, errOf(alice.Put(ctx, "/ls/local/acl/a", []byte("alice\n"))))
		dir := must(bob.Open(ctx, "/ls/local", client.OpenOptions{Read: true, Events: []api.EventKind{api.EventChildAdded, api.EventChildModified, api.EventChildRemoved}}))(t)
		hidden := must(alice.Open(ctx, "/ls/local/hidden", client.OpenOptions{Read: true, Write: true, Create: client.File, ACL: api.ACL{Read: "a", Write: "a", Change: "a"}}))(t)
		noErr(t, errOf(hidden.SetContents(ctx, []byte("secret"))))
		noErr(t, errOf(alice.Put(ctx, "/ls/local/open", []byte("1"))))
		noErr(t, errOf(alice.Put(ctx, "/ls/local/open", []byte("2"))))
		var told []string
		for len(told) < 3 {
			e := must(dir.Next(ctx))(t)
			told = append(told, e.Kind.String()+" "+e.Child)
		}
		want := []string{api.EventChildAdded.String() + " hidden", api.EventChildAdded.String() + " open", api.EventChildModified.String() + " open"}
		for i := range want {
			if told[i] != want[i] {
				t.Errorf("bob is told %q, want %q", told, want)
				break
			}
		}
	})
}

// Of a file that a client may not read a listing has the name and the kind alone; so has a handle to write it, which knows besides what was written through it.
// Those who may read it are told everything.
func TestMetadataNeedsTheRightToRead(t *testing.T) {
	inTLSCell(t, 1, func(t *testing.T, ctx context.Context, c tlsCell) {
		alice, mallory := c.as(t, ctx, "alice"), c.as(t, ctx, "mallory")
		noErr(t, errOf(alice.Put(ctx, "/ls/local/acl/a", []byte("alice\n"))))
		path := api.MustParsePath("/ls/local/pin")
		file := must(alice.Open(ctx, path.String(), client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: []byte("4711"), ACL: api.ACL{Read: "a", Write: "everyone", Change: "everyone"}}))(t)
		acquire(t, ctx, file)
		find := func(by *client.Client) (found api.Stat) {
			t.Helper()
			list := must(by.List(ctx, "/ls/local"))(t)
			for _, s := range list {
				if s.Path == path {
					found = s
				}
			}
			return found
		}
		withheld := api.Stat{Path: path, Kind: api.File, Withheld: true}
		for range 2 { // the second time of a cache, if it were there
			equal(t, find(mallory), withheld, "mallory lists %+v")
		}
		if got := find(alice); got.Withheld || got.Size != 4 || got.Checksum == 0 || got.Content == 0 || got.ACL.Read != "a" {
			t.Errorf("alice lists %+v", got)
		}
		drop := must(mallory.Open(ctx, path.String(), client.OpenOptions{Write: true}))(t)
		if got, err := drop.Stat(ctx); err != nil || got != withheld {
			t.Errorf("a handle to write it: %+v, %v", got, err)
		}
		change := must(mallory.Open(ctx, path.String(), client.OpenOptions{ChangeACL: true}))(t)
		if got, err := change.Stat(ctx); err != nil || got.Size != 0 || got.Checksum != 0 || got.ACL.Read != "a" || got.ACLs == 0 || !got.Withheld {
			t.Errorf("a handle to change its ACL: %+v, %v", got, err)
		}
		wrote, err := drop.SetContents(ctx, []byte("mine"))
		if want := (api.Stat{Path: path, Kind: api.File, Withheld: true, Content: wrote.Content, Checksum: wrote.Checksum, Size: 4, ModifiedUnix: wrote.ModifiedUnix}); err != nil || wrote != want || wrote.Content == 0 {
			t.Errorf("the answer to its own write: %+v, %v", wrote, err)
		}
		created := must(mallory.Open(ctx, "/ls/local/box", client.OpenOptions{Write: true, Create: client.NewFile, Contents: []byte("x"), ACL: api.ACL{Read: "a"}}))(t)
		if got, err := created.Stat(ctx); err != nil || got.Instance != 0 || !got.Withheld {
			t.Errorf("what it has created: %+v, %v", got, err)
		}
		// A client that is let in later sees everything at once: nothing of what was withheld is kept.
		noErr(t, errOf(alice.Put(ctx, "/ls/local/acl/a", []byte("alice\nmallory\n"))))
		if got := find(mallory); got.Withheld || got.Size != 4 {
			t.Errorf("mallory may read it now, and lists %+v", got)
		}
	})
}

// requestHash is the hash of a request as the replica makes it (wire.mutationOf).
func requestHash(parts ...[]byte) uint64 {
	sum, table := uint64(1), crc64.MakeTable(crc64.ECMA)
	for _, part := range parts {
		sum = crc64.Update(sum+uint64(len(part)), table, part)
	}
	return sum
}

// lastPart returns eight bytes that, as the last part of a request, give it a hash.
func lastPart(wanted uint64, before ...[]byte) []byte {
	table := crc64.MakeTable(crc64.ECMA)
	var byTop [256]byte
	for i, v := range table {
		byTop[v>>56] = byte(i)
	}
	state := ^wanted
	for range 8 {
		i := byTop[state>>56]
		state = (state^table[i])<<8 | uint64(i)
	}
	return binary.LittleEndian.AppendUint64(nil, state^^(requestHash(before...)+8))
}

// What was done is recorded as an act, and nothing else is: of who has no right to end a session, to change a list or the members, or to finish an
// upgrade, it is said that nothing is known, whatever he has done under the number of that request before.
func TestNobodyForgesActs(t *testing.T) {
	inAuditedCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, records func() []auditRecord) {
		root, eve := as(t, ctx, c, "root"), callerAs(t, c, "eve")
		number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
		put := func(path string, contents []byte) []*pb.TxnOperation {
			return []*pb.TxnOperation{{Action: pb.TxnAction_TXN_ACTION_PUT, Path: path, Contents: contents}}
		}
		partsOf := func(path string) [][]byte {
			return [][]byte{[]byte("commit"), number(0), number(uint64(pb.TxnAction_TXN_ACTION_PUT)), []byte(path)}
		}
		const own, operators = "/ls/local/eves", "/ls/local/acl/operators"
		target, list := uint64(root.Session()), []byte("eve\n")
		for what, forged := range map[string]struct {
			parts [][]byte // of its hash
			call  func(m *pb.Mutation) error
		}{
			"EndSession": {parts: [][]byte{[]byte("end"), number(target), []byte("because")}, call: func(m *pb.Mutation) error {
				_, err := eve.EndSession(ctx, &pb.EndSessionRequest{Caller: eve.who, Mutation: m, Target: target, Reason: "because"})
				return err
			}},
			"ChangeMembers": {parts: [][]byte{[]byte("change the members"), nil, nil, []byte("r1"), []byte("false"), nil}, call: func(m *pb.Mutation) error {
				_, err := eve.ChangeMembers(ctx, &pb.ChangeMembersRequest{Caller: eve.who, Mutation: m, Remove: "r1"})
				return err
			}},
			"FinishUpgrade": {parts: [][]byte{[]byte("finish the upgrade"), nil}, call: func(m *pb.Mutation) error {
				_, err := eve.FinishUpgrade(ctx, &pb.FinishUpgradeRequest{Caller: eve.who, Mutation: m})
				return err
			}},
			"Txn": {parts: append(partsOf(operators), list), call: func(m *pb.Mutation) error {
				_, err := eve.Txn(ctx, &pb.TxnRequest{Caller: eve.who, Mutation: m, Operations: put(operators, list)})
				return err
			}},
		} {
			m := eve.mutation()
			contents := lastPart(requestHash(forged.parts...), partsOf(own)...)
			must(eve.Txn(ctx, &pb.TxnRequest{Caller: eve.who, Mutation: m, Operations: put(own, contents)}))(t)
			if all := records(); len(all) > 0 {
				t.Errorf("to write a file of one's own is no act: %+v", all)
			}
			for range 3 {
				noErr(t, forged.call(m), what)
			}
			all := records()
			for _, r := range all {
				if r.Call != what || r.Principal != "eve" || r.Code != "Uncertain" || !strings.HasPrefix(r.Message, audit.NotKnown) {
					t.Errorf("%s is recorded as done: %+v", what, r)
				}
			}
			failIf(t, len(all) != 3, "%s: %d records of 3 calls", what, len(all))
		}
		report(t, errOf(root.Cell().Status(ctx)))
	})
}

// Two programs that mean one lock have one, also where one of them has its name from a file system that decomposes names.
func TestOneVisibleNameIsOneNode(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "a", client.Config{})
		const decomposed = "/ls/local/cafe\u0301"
		held := acquire(t, ctx, open(t, ctx, cl, "/ls/local/caf\u00e9", 0))
		for what, create := range map[string]func() error{
			"Acquire":  func() error { _, err := cl.Acquire(ctx, decomposed, client.Try()); return err },
			"Put":      func() error { _, err := cl.Put(ctx, decomposed, nil); return err },
			"MkdirAll": func() error { return cl.MkdirAll(ctx, decomposed) },
			"Txn":      func() error { _, err := cl.Txn().Put(decomposed, nil).Commit(ctx); return err },
			"a member": func() error { _, err := recipe.Announce(ctx, cl, decomposed, "a", nil); return err },
		} {
			if err := create(); !errors.Is(err, api.InvalidPath) || !strings.Contains(err.Error(), `"caf\u00e9"`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, _, err := cl.Get(ctx, decomposed); !errors.Is(err, api.NotFound) {
			t.Errorf("Get: %v", err)
		}
		report(t, held.Release(ctx))
	})
}
