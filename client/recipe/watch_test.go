//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// watch ranges over the changes of a node in the background. next returns what was told since it was last called, in
// short.
func (w *world) watch(c *client.Client, path string) (next func() string, end func() error) {
	l := recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[Change, error] { return Watch(ctx, c, path) })
	return func() string {
		return l.Words(func(change Change) string {
			switch {
			case change.Stat.Kind == api.Directory:
				var names []string
				for _, child := range change.Children {
					names = append(names, child.Path.Base())
				}
				return change.Kind.String() + fmt.Sprint(names)
			case change.Kind != Deleted:
				return change.Kind.String() + "=" + string(change.Contents)
			}
			return change.Kind.String()
		}, " ")
	}, l.End
}

// A file is told in its versions, through deletion, creation and fail-overs, and what was missed is looked at again.
func TestWatchFile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const dir, path = "/ls/local/dir", "/ls/local/dir/file"
		writer, reader := w.Client("writer"), w.Client("reader")
		next, end := w.watch(reader, path)
		expect := func(what, want string) {
			t.Helper()
			if got := next(); got != want {
				t.Errorf("%s: %q; want %q", what, got, want)
			}
		}
		expect("not even a directory", "deleted")
		w.Mkdir(writer, dir)
		expect("a directory", "")
		w.Put(writer, path, "1")
		if got := next(); !strings.HasSuffix(got, "=1") || !strings.HasPrefix(got, "created") {
			t.Errorf("a file: %q", got)
		}
		w.Put(writer, path, "2")
		expect("a write", "modified=2")
		for i := range 20 {
			w.Put(writer, path, fmt.Sprint(i))
		}
		if got := next(); !strings.HasSuffix(got, "modified=19") {
			t.Errorf("many writes: %q", got)
		}
		w.Rm(writer, path)
		expect("deleted", "deleted")
		w.Put(writer, path, "4")
		if got := next(); !strings.HasPrefix(got, "created") || !strings.HasSuffix(got, "=4") {
			t.Errorf("created again: %q", got)
		}
		w.Succeed()
		expect("a fail-over", "restarted=4")
		w.Put(writer, path, "5")
		expect("a write under the next master", "modified=5")
		w.Cut("reader") // for less than the session lasts
		w.Put(writer, path, "6")
		w.Put(writer, path, "7")
		pass(5 * time.Second)
		w.Heal("reader")
		pass(20 * time.Second)
		if got := next(); !strings.HasSuffix(got, "=7") {
			t.Errorf("after an outage: %q", got)
		}
		w.Rm(writer, path)
		w.Rm(writer, dir)
		expect("the directory, too", "deleted")
		w.Mkdir(writer, dir)
		w.Mkdir(writer, path)
		expect("a directory of that name", "created[]")
		w.Put(writer, path+"/a", "1")
		if got := next(); !strings.HasSuffix(got, "modified[a]") {
			t.Errorf("a child: %q", got)
		}
		w.Put(writer, path+"/a", "2")
		expect("contents of a child", "modified[a]")
		w.Succeed()
		expect("a fail-over", "restarted[a]")
		w.Rm(writer, path+"/a")
		expect("no child", "modified[]")
		wants(t, "given up", end(), api.Cancelled)
		_, end = w.watch(reader, path)
		pass(time.Second)
		w.Expire(reader.Session())
		pass(time.Second)
		wants(t, "the session is over", end(), api.SessionExpired)
	})
}

// A file that was deleted and created while the loop ran is told as created, and not as modified.
func TestWatchTellsInstances(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const path = "/ls/local/file"
		writer, reader := w.Client("writer"), w.Client("reader")
		w.Put(writer, path, "1")
		var told []string
		var before api.Generation
		for change, err := range Watch(w.Ctx, reader, path) {
			w.OK(err)
			if change.Kind == Created && change.Stat.Instance <= before {
				t.Errorf("instance %d after %d", change.Stat.Instance, before)
			}
			before = change.Stat.Instance
			told = append(told, change.Kind.String()+"="+string(change.Contents))
			if len(told) == 1 {
				w.Rm(writer, path)
				h := ok(writer.Open(w.Ctx, path, client.OpenOptions{Write: true, Create: client.NewFile, Contents: []byte("2")}))(w)
				w.OK(h.Close(w.Ctx))
				pass(time.Second)
			}
			if string(change.Contents) == "2" {
				break
			}
		}
		if got := strings.Join(told, " "); got != "created=1 created=2" {
			t.Error(got)
		}
		h := ok(writer.Open(w.Ctx, path+"2", client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true}))(w)
		for _, err := range Watch(w.Ctx, reader, path+"2") {
			if !errors.Is(err, api.InvalidArgument) {
				t.Errorf("an ephemeral file: %v", err)
			}
		}
		w.OK(h.Close(w.Ctx))
		pass(time.Second)
		wants(t, "the ephemeral file is kept", second(reader.Open(w.Ctx, path+"2", client.OpenOptions{Read: true})), api.NotFound)
	})
}

// A loop that is so slow that events are dropped is told so, and sees what there is.
func TestWatchSlowLoop(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const path = "/ls/local/file"
		writer, reader := w.Client("writer"), w.Client("reader")
		w.Put(writer, path, "first")
		h := ok(writer.Open(w.Ctx, path, client.OpenOptions{Write: true}))(w)
		first := true
		for change, err := range Watch(w.Ctx, reader, path) {
			w.OK(err)
			if first {
				for i := range 2 * api.MaxEventQueue {
					ok(h.SetContents(w.Ctx, fmt.Append(nil, i)))(w)
				}
				pass(time.Second)
				first = false
				continue
			}
			if want := fmt.Sprint(2*api.MaxEventQueue - 1); string(change.Contents) != want {
				t.Errorf("%q; want %s", change.Contents, want)
			}
			if change.Kind == Restarted {
				return
			}
			pass(time.Second)
			_, err = h.SetContents(w.Ctx, change.Contents) // so that the loop goes on to the event that tells of the loss
			w.OK(err)
		}
	})
}

// A candidate that has died holds up nobody for longer than a lease, also if somebody has its file open.
func TestDeadCandidateIsRead(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		p := w.primary(w.campaign("first", CampaignOptions{LockDelay: NoLockDelay}))
		high, low := w.campaign("high", CampaignOptions{LockDelay: NoLockDelay, Priority: 10}), w.campaign("low", CampaignOptions{LockDelay: NoLockDelay})
		pass(time.Second)
		reader := w.Client("reader")
		defer hold.Leave(w.Ctx, w.Read(reader, candidatesOf(office)+"/high"))
		w.OK(p.Resign(w.Ctx))
		p = w.primary(high)
		second := w.campaign("second", CampaignOptions{LockDelay: NoLockDelay, Priority: 9})
		pass(time.Second)
		defer hold.Leave(w.Ctx, w.Read(reader, candidatesOf(office)+"/second"))
		w.waits(second, low)
		w.Expire(second.Session())
		w.OK(p.Resign(w.Ctx))
		pass(verify + time.Second)
		if list, err := Candidates(w.Ctx, reader, office); err != nil || !strings.Contains(summary(list), "second") {
			t.Errorf("the file of the dead is not there: %v %v", summary(list), err)
		}
		p = w.primary(low)
		pass(time.Second)
		if wasAsked(p) {
			t.Error("the primary is asked to resign for a dead candidate")
		}
		w.campaign("third", CampaignOptions{LockDelay: NoLockDelay, Priority: 8})
		pass(time.Second)
		if !wasAsked(p) {
			t.Error("the primary is not asked to resign for one that lives")
		}
	})
}

// Files that are no candidate's count for nothing: permanent ones, and those that may not be read.
func TestFilesAmongCandidates(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		operator := w.Client("operator")
		w.Mkdir(operator, candidatesOf(office))
		w.Put(operator, candidatesOf(office)+"/left", fmt.Sprintf(`{"session":%q,"priority":5}`, operator.Session()))
		w.Put(operator, "/ls/local/acl/nobody", "operator\n")
		hide := func(name string) {
			h := ok(operator.Open(w.Ctx, candidatesOf(office)+"/"+name, client.OpenOptions{Read: true, Create: client.File, Contents: []byte("web1:80"), ACL: api.ACL{Read: "nobody"}}))(w)
			w.OK(h.Close(w.Ctx))
		}
		hide("hidden")
		p := w.primary(w.campaign("first", CampaignOptions{LockDelay: NoLockDelay}))
		second := w.campaign("second", CampaignOptions{LockDelay: NoLockDelay, Priority: 1})
		pass(time.Second)
		hide("hidden-too")
		pass(time.Second)
		if !wasAsked(p) {
			t.Error("the primary is not asked to make room")
		}
		w.waits(second)
		list, err := Candidates(w.Ctx, second.Client, office)
		if err != nil || summary(list) != "first! second:1" {
			t.Errorf("%s %v", summary(list), err)
		}
		wants(t, "a permanent file was chosen", Nominate(w.Ctx, second.Client, office, "left"), api.NotFound)
		members, err := Members(w.Ctx, second.Client, candidatesOf(office))
		if err != nil || len(members) != 2 {
			t.Errorf("%v %v", members, err)
		}
		ends, err := Lookup(w.Ctx, second.Client, candidatesOf(office))
		if err != nil || len(ends) == 0 || addresses(ends) == "" || strings.Contains(addresses(ends), "web1") {
			t.Errorf("%v %v", ends, err)
		}
		w.OK(p.Resign(w.Ctx))
		w.primary(second)
	})
}

// Who watches an ephemeral file does not keep it.
func TestEphemeralEndpoint(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const svc = "/ls/local/svc"
		reader := w.Client("reader")
		seen := w.endpoints(reader, svc)
		expect := func(what, want string) {
			t.Helper()
			if got := strings.Join(seen(), ", "); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		serve := func(host string) (*client.Client, *client.Handle) {
			c := w.Client(host)
			h := ok(c.Open(w.Ctx, svc, client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte(host + ":80")}))(w)
			return c, h
		}
		expect("nothing", "")
		a, _ := serve("a")
		expect("a", "a:80*0")
		w.Put(a, "/ls/local/other", "a neighbour")
		expect("a neighbour", "")
		w.Expire(a.Session())
		expect("a is dead", "")
		b, h := serve("b")
		expect("b", "b:80*0")
		ok(h.SetContents(w.Ctx, []byte("b:81")))(w)
		expect("another port", "b:81*0")
		w.Succeed()
		expect("a fail-over", "")
		w.OK(h.Close(w.Ctx))
		expect("b has gone", "")
		w.Put(b, svc, "c:80")
		expect("a permanent file", "c:80*0")
		w.Rm(b, svc)
		w.Mkdir(b, svc)
		w.Put(b, svc+"/d", "d:80")
		if sets := seen(); len(sets) == 0 || sets[len(sets)-1] != "d:80*0" {
			t.Errorf("a directory: %q", sets)
		}
	})
}

// A file that is being removed, with the session that had it, is not there.
func TestFollowTheDying(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const svc = "/ls/local/svc"
		owner, reader, cacher := w.Client("owner"), w.Client("reader"), w.Client("cacher")
		ok(owner.Open(w.Ctx, svc, client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte("a:80")}))(w)
		for range 3 { // and so the cache is in use, under a lease that the removal waits for
			w.Cat(cacher, svc)
			synctest.Wait()
		}
		list := w.Read(cacher, path.Dir(svc))
		ok(list.ReadDir(w.Ctx))(w)
		w.Cut("cacher")
		w.Expire(owner.Session())
		if _, err := reader.Open(w.Ctx, svc, client.OpenOptions{Read: true}); !errors.Is(err, api.Exists) {
			t.Fatalf("it is not being removed: %v", err)
		}
		seen := w.endpoints(reader, svc)
		pass(30 * time.Second)
		w.Put(reader, svc, "b:80")
		if got := strings.Join(seen(), ", "); got != ", b:80*0" {
			t.Errorf("%q", got)
		}
	})
}

// What needs a file that stays refuses one that it would keep from going, and does not keep it.
func TestEphemeralIsRefused(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c, reader := w.Client("owner"), w.Client("reader")
		w.Mkdir(c, path.Dir(configPath))
		for _, file := range []string{office, configPath} {
			ok(c.Open(w.Ctx, file, client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte("1")}))(w)
		}
		for _, err := range Observe(w.Ctx, reader, office) {
			if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "ephemeral") {
				t.Fatalf("Observe: %v", err)
			}
		}
		ctx := w.brief(time.Minute)
		_, err := WatchConfig(ctx, w.ConfigOf("h1"), configPath, number, ConfigFileOptions[int]{})
		if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "ephemeral") || ctx.Err() != nil {
			t.Errorf("WatchConfig: %v", err)
		}
		w.Expire(c.Session())
		pass(time.Second)
		for _, file := range []string{office, configPath} {
			if _, err := reader.Open(w.Ctx, file, client.OpenOptions{Read: true}); !errors.Is(err, api.NotFound) {
				t.Errorf("%s is there: %v", file, err)
			}
		}
	})
}
