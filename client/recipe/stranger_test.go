//go:build linux

package recipe

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A candidate that has died holds up nobody for longer than a lease, also if somebody has its file open.
func TestDeadCandidateIsRead(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		p := w.primary(w.campaign("first", CampaignOptions{LockDelay: NoLockDelay}))
		high, low := w.campaign("high", CampaignOptions{LockDelay: NoLockDelay, Priority: 10}), w.campaign("low", CampaignOptions{LockDelay: NoLockDelay})
		pass(time.Second)
		reader := w.Client("reader")
		defer leave(w.Ctx, w.Read(reader, candidatesOf(office)+"/high"))
		w.OK(p.Resign(w.Ctx))
		p = w.primary(high)
		second := w.campaign("second", CampaignOptions{LockDelay: NoLockDelay, Priority: 9})
		pass(time.Second)
		defer leave(w.Ctx, w.Read(reader, candidatesOf(office)+"/second"))
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
			h, err := operator.Open(w.Ctx, candidatesOf(office)+"/"+name, client.OpenOptions{Read: true, Create: client.File, Contents: []byte("web1:80"), ACL: api.ACL{Read: "nobody"}})
			w.OK(err)
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
		if err := Nominate(w.Ctx, second.Client, office, "left"); !errors.Is(err, api.NotFound) {
			t.Errorf("a permanent file was chosen: %v", err)
		}
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
			h, err := c.Open(w.Ctx, svc, client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte(host + ":80")})
			w.OK(err)
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
		_, err := h.SetContents(w.Ctx, []byte("b:81"))
		w.OK(err)
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
		_, err := owner.Open(w.Ctx, svc, client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte("a:80")})
		w.OK(err)
		for range 3 { // and so the cache is in use, under a lease that the removal waits for
			w.Cat(cacher, svc)
			synctest.Wait()
		}
		list := w.Read(cacher, path.Dir(svc))
		_, err = list.ReadDir(w.Ctx)
		w.OK(err)
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
			_, err := c.Open(w.Ctx, file, client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte("1")})
			w.OK(err)
		}
		for _, err := range Observe(w.Ctx, reader, office) {
			if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "ephemeral") {
				t.Fatalf("Observe: %v", err)
			}
		}
		ctx, cancel := w.Brief(time.Minute)
		defer cancel()
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
