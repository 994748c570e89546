//go:build linux

package recipe

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// read opens a file and keeps it open.
func (w *world) read(c *client.Client, path string) *client.Handle {
	w.t.Helper()
	h, err := c.Open(w.ctx, path, client.OpenOptions{Read: true})
	w.ok(err)
	return h
}

// A candidate that has died holds up nobody for longer than a lease, also if somebody has its file open.
func TestDeadCandidateIsRead(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		p := w.primary(w.campaign("first", CampaignOptions{LockDelay: NoLockDelay}))
		high, low := w.campaign("high", CampaignOptions{LockDelay: NoLockDelay, Priority: 10}), w.campaign("low", CampaignOptions{LockDelay: NoLockDelay})
		pass(time.Second)
		reader := w.dial("reader")
		defer leave(w.ctx, w.read(reader, candidatesOf(office)+"/high"))
		w.ok(p.Resign(w.ctx))
		p = w.primary(high)
		second := w.campaign("second", CampaignOptions{LockDelay: NoLockDelay, Priority: 9})
		pass(time.Second)
		defer leave(w.ctx, w.read(reader, candidatesOf(office)+"/second"))
		w.waits(second, low)
		w.Expire(second.Session())
		w.ok(p.Resign(w.ctx))
		pass(verify + time.Second)
		if list, err := Candidates(w.ctx, reader, office); err != nil || !strings.Contains(summary(list), "second") {
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

// A participant that has died holds up nobody for longer than a lease, whether they leave or come, also if
// somebody has its file open.
func TestDeadParticipantIsRead(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		reader, four, five := w.dial("reader"), w.dial("h4"), w.dial("h5")
		for _, leaves := range []bool{true, false} {
			one, two := w.dial("h1"), w.dial("h2")
			passes := w.party(2, one, two)
			for _, p := range passes {
				if p == nil {
					t.Fatal("the round before is not over")
				}
				defer leave(w.ctx, w.read(reader, partyDir+"/"+p.name))
			}
			w.Expire(one.Session())
			ctx, cancel := w.brief(verify + time.Second)
			if leaves {
				if err := passes[1].Leave(ctx); err != nil {
					t.Errorf("Leave: %v", err)
				}
			} else {
				w.Expire(two.Session())
				began := time.Now()
				w.party(2, four, five)
				if took := time.Since(began); took > verify+time.Second {
					t.Errorf("Enter took %v", took)
				}
			}
			cancel()
		}
	})
}

// Files that are no candidate's count for nothing: permanent ones, and those that may not be read.
func TestFilesAmongCandidates(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		operator := w.dial("operator")
		w.mkdir(operator, candidatesOf(office))
		w.put(operator, candidatesOf(office)+"/left", fmt.Sprintf(`{"session":%q,"priority":5}`, operator.Session()))
		w.put(operator, "/ls/local/acl/nobody", "operator\n")
		hide := func(name string) {
			h, err := operator.Open(w.ctx, candidatesOf(office)+"/"+name, client.OpenOptions{Read: true, Create: client.File, Contents: []byte("web1:80"), ACL: api.ACL{Read: "nobody"}})
			w.ok(err)
			w.ok(h.Close(w.ctx))
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
		list, err := Candidates(w.ctx, second.Client, office)
		if err != nil || summary(list) != "first! second:1" {
			t.Errorf("%s %v", summary(list), err)
		}
		if err := Nominate(w.ctx, second.Client, office, "left"); !errors.Is(err, api.NotFound) {
			t.Errorf("a permanent file was chosen: %v", err)
		}
		members, err := Members(w.ctx, second.Client, candidatesOf(office))
		if err != nil || len(members) != 2 {
			t.Errorf("%v %v", members, err)
		}
		ends, err := Lookup(w.ctx, second.Client, candidatesOf(office))
		if err != nil || len(ends) == 0 || addresses(ends) == "" || strings.Contains(addresses(ends), "web1") {
			t.Errorf("%v %v", ends, err)
		}
		w.ok(p.Resign(w.ctx))
		w.primary(second)
	})
}

// Who watches an ephemeral file does not keep it.
func TestEphemeralEndpoint(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const svc = "/ls/local/svc"
		reader := w.dial("reader")
		seen := w.endpoints(reader, svc)
		expect := func(what, want string) {
			t.Helper()
			if got := strings.Join(seen(), ", "); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		serve := func(host string) (*client.Client, *client.Handle) {
			c := w.dial(host)
			h, err := c.Open(w.ctx, svc, client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte(host + ":80")})
			w.ok(err)
			return c, h
		}
		expect("nothing", "")
		a, _ := serve("a")
		expect("a", "a:80*0")
		w.put(a, "/ls/local/other", "a neighbour")
		expect("a neighbour", "")
		w.Expire(a.Session())
		expect("a is dead", "")
		b, h := serve("b")
		expect("b", "b:80*0")
		_, err := h.SetContents(w.ctx, []byte("b:81"))
		w.ok(err)
		expect("another port", "b:81*0")
		w.failOver()
		expect("a fail-over", "")
		w.ok(h.Close(w.ctx))
		expect("b has gone", "")
		w.put(b, svc, "c:80")
		expect("a permanent file", "c:80*0")
		w.rm(b, svc)
		w.mkdir(b, svc)
		w.put(b, svc+"/d", "d:80")
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
		owner, reader, cacher := w.dial("owner"), w.dial("reader"), w.dial("cacher")
		_, err := owner.Open(w.ctx, svc, client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte("a:80")})
		w.ok(err)
		for range 3 { // and so the cache is in use, under a lease that the removal waits for
			w.cat(cacher, svc)
			synctest.Wait()
		}
		list := w.read(cacher, path.Dir(svc))
		_, err = list.ReadDir(w.ctx)
		w.ok(err)
		w.Cut("cacher")
		w.Expire(owner.Session())
		if _, err := reader.Open(w.ctx, svc, client.OpenOptions{Read: true}); !errors.Is(err, api.Exists) {
			t.Fatalf("it is not being removed: %v", err)
		}
		var sets []string
		ctx, cancel := w.brief(time.Minute)
		defer cancel()
		var running sync.WaitGroup
		running.Go(func() {
			for list, err := range WatchEndpoints(ctx, reader, svc) {
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("watch: %v", err)
					}
					return
				}
				sets = append(sets, addresses(list))
			}
		})
		pass(30 * time.Second)
		w.put(reader, svc, "b:80")
		running.Wait()
		synctest.Wait()
		if got := strings.Join(sets, ", "); got != ", b:80*0" {
			t.Errorf("%q", got)
		}
	})
}

// What needs a file that stays refuses one that it would keep from going, and does not keep it.
func TestEphemeralIsRefused(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c, reader := w.dial("owner"), w.dial("reader")
		w.mkdir(c, path.Dir(configPath))
		for _, file := range []string{office, configPath} {
			_, err := c.Open(w.ctx, file, client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte("1")})
			w.ok(err)
		}
		for _, err := range Observe(w.ctx, reader, office) {
			if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "ephemeral") {
				t.Fatalf("Observe: %v", err)
			}
		}
		ctx, cancel := w.brief(time.Minute)
		defer cancel()
		_, err := WatchConfig(ctx, w.config("h1"), configPath, number, ConfigFileOptions[int]{})
		if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "ephemeral") || ctx.Err() != nil {
			t.Errorf("WatchConfig: %v", err)
		}
		w.Expire(c.Session())
		pass(time.Second)
		for _, file := range []string{office, configPath} {
			if _, err := reader.Open(w.ctx, file, client.OpenOptions{Read: true}); !errors.Is(err, api.NotFound) {
				t.Errorf("%s is there: %v", file, err)
			}
		}
	})
}
