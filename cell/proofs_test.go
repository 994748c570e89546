package cell_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
)

// A client without any right to a lock makes up its sequencer, with the right token. The cell calls it invalid, whether the lock is held or its file
// is absent, and a guard with a session does not let it in. That of the holder is valid in anybody's hands, and goes on being so under another master.
func TestInventedSequencers(t *testing.T) {
	inTLSCell(t, func(t *testing.T, ctx context.Context, c tlsCell) {
		as := func(who string) *client.Client {
			return dial(t, ctx, c.Cell, who, client.Config{TLS: c.clients.client(who)})
		}
		alice, server, mallory := as("alice"), as("server"), as("mallory")
		for name, lines := range map[string]string{"a": "alice\n", "r": "alice\nserver\n"} {
			_, err := alice.Put(ctx, "/ls/local/acl/"+name, []byte(lines))
			c.clients.check(err)
		}
		dir, err := alice.Open(ctx, "/ls/local/private", client.OpenOptions{Write: true, Create: client.Directory, ACL: api.ACL{Read: "r", Write: "a", Change: "a"}})
		c.clients.check(err)
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
		if told := ask(held); told != "valid" {
			t.Errorf("the holder's own sequencer, shown by another: %s", told)
		}
		checker, err := server.CachingChecker(client.MaxCheckAge)
		c.clients.check(err)
		defer checker.Close()
		store, err := sequencer.OpenFileStore(filepath.Join(t.TempDir(), "tokens"))
		c.clients.check(err)
		defer store.Close()
		guard, err := sequencer.NewGuard(ctx, sequencer.GuardConfig{Locks: []api.Path{held.Path}, Store: store, Checker: checker})
		c.clients.check(err)
		refused := func(when string) {
			t.Helper()
			if _, err := guard.Check(ctx, invented.String()); api.CodeOf(err) != api.BadSequencer {
				t.Errorf("%s a guard with a session lets an invented sequencer in: %v", when, err)
			}
		}
		refused("at first")
		_, err = guard.Check(ctx, held.String())
		c.clients.check(err)
		refused("while it knows that the right one is valid")
		c.FailOver()
		if told := ask(held); told != "valid" {
			t.Errorf("under another master: %s", told)
		}
	})
}

// A reader of a directory is told that a file in it was written only if it may read the file; and of names that come and go.
func TestChildEventsNeedTheRightToTheChild(t *testing.T) {
	inTLSCell(t, func(t *testing.T, ctx context.Context, c tlsCell) {
		as := func(who string) *client.Client {
			return dial(t, ctx, c.Cell, who, client.Config{TLS: c.clients.client(who)})
		}
		alice, bob := as("alice"), as("bob")
		_, err := alice.Put(ctx, "/ls/local/acl/a", []byte("alice\n"))
		c.clients.check(err)
		dir, err := bob.Open(ctx, "/ls/local", client.OpenOptions{Read: true, Events: []api.EventKind{api.EventChildAdded, api.EventChildModified, api.EventChildRemoved}})
		c.clients.check(err)
		hidden, err := alice.Open(ctx, "/ls/local/hidden", client.OpenOptions{Read: true, Write: true, Create: client.File, ACL: api.ACL{Read: "a", Write: "a", Change: "a"}})
		c.clients.check(err)
		_, err = hidden.SetContents(ctx, []byte("secret"))
		c.clients.check(err)
		_, err = alice.Put(ctx, "/ls/local/open", []byte("1"))
		c.clients.check(err)
		_, err = alice.Put(ctx, "/ls/local/open", []byte("2"))
		c.clients.check(err)
		var told []string
		for len(told) < 3 {
			e, err := dir.Next(ctx)
			c.clients.check(err)
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
	inTLSCell(t, func(t *testing.T, ctx context.Context, c tlsCell) {
		as := func(who string) *client.Client {
			return dial(t, ctx, c.Cell, who, client.Config{TLS: c.clients.client(who)})
		}
		alice, mallory := as("alice"), as("mallory")
		_, err := alice.Put(ctx, "/ls/local/acl/a", []byte("alice\n"))
		c.clients.check(err)
		path := api.MustParsePath("/ls/local/pin")
		file, err := alice.Open(ctx, path.String(), client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: []byte("4711"), ACL: api.ACL{Read: "a", Write: "everyone", Change: "everyone"}})
		c.clients.check(err)
		acquire(t, ctx, file)
		find := func(by *client.Client) (found api.Stat) {
			t.Helper()
			list, err := by.List(ctx, "/ls/local")
			c.clients.check(err)
			for _, s := range list {
				if s.Path == path {
					found = s
				}
			}
			return found
		}
		withheld := api.Stat{Path: path, Kind: api.File, Withheld: true}
		for range 2 { // the second time of a cache, if it were there
			if got := find(mallory); got != withheld {
				t.Errorf("mallory lists %+v", got)
			}
		}
		if got := find(alice); got.Withheld || got.Size != 4 || got.Checksum == 0 || got.Content == 0 || got.ACL.Read != "a" {
			t.Errorf("alice lists %+v", got)
		}
		drop, err := mallory.Open(ctx, path.String(), client.OpenOptions{Write: true})
		c.clients.check(err)
		if got, err := drop.Stat(ctx); err != nil || got != withheld {
			t.Errorf("a handle to write it: %+v, %v", got, err)
		}
		change, err := mallory.Open(ctx, path.String(), client.OpenOptions{ChangeACL: true})
		c.clients.check(err)
		if got, err := change.Stat(ctx); err != nil || got.Size != 0 || got.Checksum != 0 || got.ACL.Read != "a" || got.ACLs == 0 || !got.Withheld {
			t.Errorf("a handle to change its ACL: %+v, %v", got, err)
		}
		wrote, err := drop.SetContents(ctx, []byte("mine"))
		if want := (api.Stat{Path: path, Kind: api.File, Withheld: true, Content: wrote.Content, Checksum: wrote.Checksum, Size: 4, ModifiedUnix: wrote.ModifiedUnix}); err != nil || wrote != want || wrote.Content == 0 {
			t.Errorf("the answer to its own write: %+v, %v", wrote, err)
		}
		created, err := mallory.Open(ctx, "/ls/local/box", client.OpenOptions{Write: true, Create: client.NewFile, Contents: []byte("x"), ACL: api.ACL{Read: "a"}})
		c.clients.check(err)
		if got, err := created.Stat(ctx); err != nil || got.Instance != 0 || !got.Withheld {
			t.Errorf("what it has created: %+v, %v", got, err)
		}
		// A client that is let in later sees everything at once: nothing of what was withheld is kept.
		_, err = alice.Put(ctx, "/ls/local/acl/a", []byte("alice\nmallory\n"))
		c.clients.check(err)
		if got := find(mallory); got.Withheld || got.Size != 4 {
			t.Errorf("mallory may read it now, and lists %+v", got)
		}
	})
}
