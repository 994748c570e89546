//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

const up = "/ls/local/up"

// watchMembers returns who writes down the sets of members.
func (w *world) watchMembers(host string) (seen func() string) {
	c := w.Client(host)
	l := recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[[]Member, error] { return WatchMembers(ctx, c, up) })
	return func() string { return l.Words(names, ", ") }
}

// A value that the cell refuses is not the value: it is not shown when the file is made again, nor does
// it keep that from being made.
func TestRefusedUpdate(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		a, operator := w.Client("a"), w.Client("operator")
		p := ok(Announce(w.Ctx, a, up, "a", []byte("1")))(w)
		wants(t, "Update", p.Update(w.Ctx, make([]byte, api.MaxContents+1)), api.TooLarge)
		w.Rm(operator, up+"/a")
		time.Sleep(time.Second)
		list := ok(Members(w.Ctx, operator, up))(w)
		if names(list) != "a=1" || p.Context().Err() != nil {
			t.Errorf("%q; %v", names(list), context.Cause(p.Context()))
		}
		w.OK(p.Withdraw(w.Ctx))
	})
}

// names writes members as "name=value name=value".
func names(list []Member) string {
	var words []string
	for _, m := range list {
		words = append(words, fmt.Sprintf("%s=%s", m.Name, m.Value))
	}
	return strings.Join(words, " ")
}

// A member is listed from the announcement until it is withdrawn, with its newest value, also if its file
// is deleted, and through fail-overs; whoever watches sees each change and nothing else.
func TestPresence(t *testing.T) {
	inWorld(t, func(w *world) {
		seen := w.watchMembers("watcher")
		expect := func(what, want string) {
			t.Helper()
			if got := seen(); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		expect("no directory", "")
		a, operator := w.Client("a"), w.Client("operator")
		p := ok(Announce(w.Ctx, a, up, "a", []byte("1")))(w)
		expect("an announcement", "a=1")
		w.Put(operator, up+"/note", "permanent files are no members")
		h := ok(operator.Open(w.Ctx, up+"/b", client.OpenOptions{Write: true, Create: client.File, Ephemeral: true, Contents: []byte("by hand")}))(w)
		expect("another", "a=1 b=by hand")
		w.OK(p.Update(w.Ctx, []byte{0xff}))
		expect("an update", "a=\xff b=by hand")
		w.OK(h.Close(w.Ctx))
		expect("it is gone", "a=\xff")
		w.Succeed()
		expect("a fail-over", "")
		w.Rm(operator, up+"/a")
		expect("a deletion, and the file is there again before anybody looks", "")
		w.OK(p.Update(w.Ctx, []byte("2")))
		expect("an update", "a=2")
		list := ok(Members(w.Ctx, operator, up))(w)
		if len(list) != 1 || list[0].Session != a.Session() || list[0].PID == 0 || list[0].Host == "" {
			t.Errorf("%+v", list)
		}
		for range 2 {
			w.OK(p.Withdraw(w.Ctx))
		}
		expect("it is withdrawn", "")
		if p.Context().Err() == nil || p.Update(w.Ctx, nil) == nil {
			t.Error("an announcement is withdrawn, and goes on")
		}
		wants(t, "Members", second(Members(w.Ctx, operator, "/ls/local/nowhere")), api.NotFound)
		wants(t, "Announce", second(Announce(w.Ctx, a, "/ls/local/no/where", "a", nil)), api.NotFound)
		wants(t, "Announce", second(Announce(w.Ctx, a, up, "a/b", nil)), api.InvalidArgument)
	})
}

// Who loses its session is no member once the cell has ended it, and knows; in the next session it waits
// for its name.
func TestPresenceSessionLost(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		seen := w.watchMembers("watcher")
		a := w.Client("a")
		p := ok(Announce(w.Ctx, a, up, "a", []byte("1")))(w)
		if got := seen(); got != ", a=1" && got != "a=1" {
			t.Errorf("at first: %q", got)
		}
		w.Expire(a.Session())
		if got := seen(); got != "" || p.Context().Err() == nil {
			t.Errorf("it has expired: %q", got)
		}
		<-p.Context().Done()
		wants(t, "Cause", context.Cause(p.Context()), api.SessionExpired)
		w.OK(p.Withdraw(w.Ctx))
		b := w.Client("b")
		ok(Announce(w.Ctx, b, up, "b", []byte("1")))(w)
		time.Sleep(time.Second)
		w.Cut("b")
		began := time.Now()
		again, err := Announce(w.Ctx, w.Client("b2"), up, "b", []byte("2")) // as the same process does in its next session
		w.OK(err)
		if waited := time.Since(began); waited < api.DefaultLease/2 || waited > 2*api.DefaultLease {
			t.Errorf("the name was had after %v", waited)
		}
		w.Settle()
		// The name is had as soon as it is free: who watches may look only after that.
		if got := seen(); got != "b=1, , b=2" && got != "b=1, b=2" {
			t.Errorf("one session after the other: %q", got)
		}
		w.OK(again.Withdraw(w.Ctx))
	})
}

// Two sessions do not have one name, and the second is told who has it.
func TestPresenceTaken(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		a, b := w.Client("a"), w.Client("b")
		p := ok(Announce(w.Ctx, a, up, "x", nil))(w)
		for _, c := range []*client.Client{a, b} {
			_, err := Announce(w.Ctx, c, up, "x", nil)
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.Exists || len(e.Holders) != 1 || e.Holders[0].Session != a.Session() {
				t.Errorf("a name that is taken: %v", err)
			}
		}
		w.Put(a, up+"/y", "permanent")
		wants(t, "Announce", second(Announce(w.Ctx, b, up, "y", nil)), api.Exists)
		ctx := w.brief(time.Second)
		if _, err := Announce(ctx, b, up, "x", nil); !errors.Is(err, api.DeadlineExceeded) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		next := make(chan error, 1)
		go func() {
			_, err := Announce(w.Ctx, b, up, "x", nil)
			next <- err
		}()
		time.Sleep(time.Second)
		w.OK(p.Withdraw(w.Ctx))
		w.OK(<-next)
	})
}

// Endpoints are those of a directory, however they came there, or the one of a file.
func TestNames(t *testing.T) {
	inWorld(t, func(w *world) {
		const svc = "/ls/local/svc"
		a, reader := w.Client("a"), w.Client("reader")
		seen := w.endpoints(reader, svc)
		expect := func(what, want string) {
			t.Helper()
			if got := strings.Join(seen(), ", "); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		expect("nothing", "")
		p := ok(Publish(w.Ctx, a, svc, Endpoint{Address: "unix:/run/svc", Weight: 1, Metadata: map[string]string{"zone": "x"}}))(w)
		expect("published", "unix:/run/svc*1")
		w.Put(a, svc+"/static", "web1:80\n")
		expect("by hand", "unix:/run/svc*1 web1:80*0")
		for name, text := range map[string]string{"README": "the web servers", "host": "web2", "port": "web2:http", "zero": "web2:0", "space": "web 2:80", "none": ":80"} {
			w.Put(a, svc+"/"+name, text)
		}
		expect("what is no address", "")
		w.Put(a, svc+"/host", `{"address":"web2"}`)
		expect("an endpoint as JSON", "unix:/run/svc*1 web1:80*0 web2*0")
		w.Rm(a, svc+"/host")
		expect("without it", "unix:/run/svc*1 web1:80*0")
		w.OK(p.Update(w.Ctx, 2, nil))
		expect("another weight", "unix:/run/svc*2 web1:80*0")
		list := ok(Lookup(w.Ctx, a, svc))(w)
		if got := addresses(list); got != "unix:/run/svc*2 web1:80*0" {
			t.Error(got)
		}
		w.OK(p.Withdraw(w.Ctx))
		for _, name := range []string{"static", "README", "port", "zero", "space", "none"} {
			w.Rm(a, svc+"/"+name)
		}
		w.Rm(a, svc)
		time.Sleep(time.Second)
		w.Put(a, svc, "primary:80")
		if sets := seen(); len(sets) == 0 || sets[len(sets)-1] != "primary:80*0" {
			t.Errorf("a file: %q", sets)
		}
		w.Succeed()
		expect("a fail-over", "")
		w.Put(a, svc, " ")
		expect("no address", "")
		wants(t, "Publish", second(Publish(w.Ctx, a, svc, Endpoint{})), api.InvalidArgument)
		wants(t, "Lookup", second(Lookup(w.Ctx, a, "/ls/local/nowhere")), api.NotFound)
	})
}

// endpoints watches a service until the test ends. The function it returns gives those of the next second, and
// what was seen since it was called before.
func (w *world) endpoints(c *client.Client, svc string) (seen func() []string) {
	l := recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[[]Endpoint, error] { return WatchEndpoints(ctx, c, svc) })
	return func() (sets []string) {
		for _, list := range l.Heard() {
			sets = append(sets, addresses(list))
		}
		return sets
	}
}

func addresses(list []Endpoint) string {
	var words []string
	for _, e := range list {
		words = append(words, fmt.Sprintf("%s*%d", e.Address, e.Weight))
	}
	return strings.Join(words, " ")
}
