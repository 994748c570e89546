//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const up = "/ls/local/up"

// roll is a WatchMembers in the background.
type roll struct {
	mu   sync.Mutex // guards sets
	sets []string
}

func (w *world) watchMembers(host string) *roll {
	w.t.Helper()
	r, c := &roll{}, w.dial(host)
	ctx, cancel := context.WithCancel(w.ctx)
	var running sync.WaitGroup
	w.t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		for list, err := range WatchMembers(ctx, c, up) {
			if err != nil {
				if ctx.Err() == nil {
					w.t.Errorf("watch: %v", err)
				}
				return
			}
			r.mu.Lock()
			r.sets = append(r.sets, names(list))
			r.mu.Unlock()
		}
	})
	return r
}

// A value that the cell refuses is not the value: it is not shown when the file is made again, nor does
// it keep that from being made.
func TestRefusedUpdate(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		a, operator := w.dial("a"), w.dial("operator")
		p, err := Announce(w.ctx, a, up, "a", []byte("1"))
		w.ok(err)
		if err := p.Update(w.ctx, make([]byte, api.MaxContents+1)); !errors.Is(err, api.TooLarge) {
			t.Errorf("Update: %v", err)
		}
		w.rm(operator, up+"/a")
		time.Sleep(time.Second)
		list, err := Members(w.ctx, operator, up)
		w.ok(err)
		if names(list) != "a=1" || p.Context().Err() != nil {
			t.Errorf("%q; %v", names(list), context.Cause(p.Context()))
		}
		w.ok(p.Withdraw(w.ctx))
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

// seen returns the sets since the last call.
func (r *roll) seen() string {
	time.Sleep(time.Second)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strings.Join(r.sets, ", ")
	r.sets = nil
	return text
}

// A member is listed from the announcement until it is withdrawn, with its newest value, also if its file
// is deleted, and through fail-overs; whoever watches sees each change and nothing else.
func TestPresence(t *testing.T) {
	inWorld(t, func(w *world) {
		watcher := w.watchMembers("watcher")
		expect := func(what, want string) {
			t.Helper()
			if got := watcher.seen(); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		expect("no directory", "")
		a, operator := w.dial("a"), w.dial("operator")
		p, err := Announce(w.ctx, a, up, "a", []byte("1"))
		w.ok(err)
		expect("an announcement", "a=1")
		w.put(operator, up+"/note", "permanent files are no members")
		h, err := operator.Open(w.ctx, up+"/b", client.OpenOptions{Write: true, Create: client.File, Ephemeral: true, Contents: []byte("by hand")})
		w.ok(err)
		expect("another", "a=1 b=by hand")
		w.ok(p.Update(w.ctx, []byte{0xff}))
		expect("an update", "a=\xff b=by hand")
		w.ok(h.Close(w.ctx))
		expect("it is gone", "a=\xff")
		w.failOver()
		expect("a fail-over", "")
		w.rm(operator, up+"/a")
		expect("a deletion, and the file is there again before anybody looks", "")
		w.ok(p.Update(w.ctx, []byte("2")))
		expect("an update", "a=2")
		list, err := Members(w.ctx, operator, up)
		w.ok(err)
		if len(list) != 1 || list[0].Session != a.Session() || list[0].PID == 0 || list[0].Host == "" {
			t.Errorf("%+v", list)
		}
		for range 2 {
			w.ok(p.Withdraw(w.ctx))
		}
		expect("it is withdrawn", "")
		if p.Context().Err() == nil || p.Update(w.ctx, nil) == nil {
			t.Error("an announcement is withdrawn, and goes on")
		}
		if _, err := Members(w.ctx, operator, "/ls/local/nowhere"); !errors.Is(err, api.NotFound) {
			t.Error(err)
		}
		if _, err := Announce(w.ctx, a, "/ls/local/no/where", "a", nil); !errors.Is(err, api.NotFound) {
			t.Error(err)
		}
		if _, err := Announce(w.ctx, a, up, "a/b", nil); !errors.Is(err, api.InvalidArgument) {
			t.Error(err)
		}
	})
}

// Who loses its session is no member once the cell has ended it, and knows; in the next session it waits
// for its name.
func TestPresenceSessionLost(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		watcher := w.watchMembers("watcher")
		a := w.dial("a")
		p, err := Announce(w.ctx, a, up, "a", []byte("1"))
		w.ok(err)
		if got := watcher.seen(); got != ", a=1" && got != "a=1" {
			t.Errorf("at first: %q", got)
		}
		w.Expire(a.Session())
		if got := watcher.seen(); got != "" || p.Context().Err() == nil {
			t.Errorf("it has expired: %q", got)
		}
		<-p.Context().Done()
		if err := context.Cause(p.Context()); !errors.Is(err, api.SessionExpired) {
			t.Error(err)
		}
		w.ok(p.Withdraw(w.ctx))
		b := w.dial("b")
		_, err = Announce(w.ctx, b, up, "b", []byte("1"))
		w.ok(err)
		time.Sleep(time.Second)
		w.Cut("b")
		began := time.Now()
		again, err := Announce(w.ctx, w.dial("b2"), up, "b", []byte("2")) // as the same process does in its next session
		w.ok(err)
		if waited := time.Since(began); waited < api.DefaultLease/2 || waited > 2*api.DefaultLease {
			t.Errorf("the name was had after %v", waited)
		}
		w.settle()
		// The name is had as soon as it is free: who watches may look only after that.
		if got := watcher.seen(); got != "b=1, , b=2" && got != "b=1, b=2" {
			t.Errorf("one session after the other: %q", got)
		}
		w.ok(again.Withdraw(w.ctx))
	})
}

// Two sessions do not have one name, and the second is told who has it.
func TestPresenceTaken(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		a, b := w.dial("a"), w.dial("b")
		p, err := Announce(w.ctx, a, up, "x", nil)
		w.ok(err)
		for _, c := range []*client.Client{a, b} {
			_, err = Announce(w.ctx, c, up, "x", nil)
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.Exists || len(e.Holders) != 1 || e.Holders[0].Session != a.Session() {
				t.Errorf("a name that is taken: %v", err)
			}
		}
		w.put(a, up+"/y", "permanent")
		if _, err = Announce(w.ctx, b, up, "y", nil); !errors.Is(err, api.Exists) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		if _, err = Announce(ctx, b, up, "x", nil); !errors.Is(err, api.DeadlineExceeded) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		next := make(chan error, 1)
		go func() {
			_, err := Announce(w.ctx, b, up, "x", nil)
			next <- err
		}()
		time.Sleep(time.Second)
		w.ok(p.Withdraw(w.ctx))
		w.ok(<-next)
	})
}

// Endpoints are those of a directory, however they came there, or the one of a file.
func TestNames(t *testing.T) {
	inWorld(t, func(w *world) {
		const svc = "/ls/local/svc"
		a, reader := w.dial("a"), w.dial("reader")
		seen := w.endpoints(reader, svc)
		expect := func(what, want string) {
			t.Helper()
			if got := strings.Join(seen(), ", "); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		expect("nothing", "")
		p, err := Publish(w.ctx, a, svc, Endpoint{Address: "unix:/run/svc", Weight: 1, Metadata: map[string]string{"zone": "x"}})
		w.ok(err)
		expect("published", "unix:/run/svc*1")
		w.put(a, svc+"/static", "web1:80\n")
		expect("by hand", "unix:/run/svc*1 web1:80*0")
		for name, text := range map[string]string{"README": "the web servers", "host": "web2", "port": "web2:http", "zero": "web2:0", "space": "web 2:80", "none": ":80"} {
			w.put(a, svc+"/"+name, text)
		}
		expect("what is no address", "")
		w.put(a, svc+"/host", `{"address":"web2"}`)
		expect("an endpoint as JSON", "unix:/run/svc*1 web1:80*0 web2*0")
		w.rm(a, svc+"/host")
		expect("without it", "unix:/run/svc*1 web1:80*0")
		w.ok(p.Update(w.ctx, 2, nil))
		expect("another weight", "unix:/run/svc*2 web1:80*0")
		list, err := Lookup(w.ctx, a, svc)
		w.ok(err)
		if got := addresses(list); got != "unix:/run/svc*2 web1:80*0" {
			t.Error(got)
		}
		w.ok(p.Withdraw(w.ctx))
		for _, name := range []string{"static", "README", "port", "zero", "space", "none"} {
			w.rm(a, svc+"/"+name)
		}
		w.rm(a, svc)
		time.Sleep(time.Second)
		w.put(a, svc, "primary:80")
		if sets := seen(); len(sets) == 0 || sets[len(sets)-1] != "primary:80*0" {
			t.Errorf("a file: %q", sets)
		}
		w.failOver()
		expect("a fail-over", "")
		w.put(a, svc, " ")
		expect("no address", "")
		if _, err := Publish(w.ctx, a, svc, Endpoint{}); !errors.Is(err, api.InvalidArgument) {
			t.Error(err)
		}
		if _, err := Lookup(w.ctx, a, "/ls/local/nowhere"); !errors.Is(err, api.NotFound) {
			t.Error(err)
		}
	})
}

// endpoints watches a service until the test ends. The function it returns gives
// those of the next second, and what was seen since it was called before.
func (w *world) endpoints(c *client.Client, svc string) (seen func() []string) {
	var mu sync.Mutex // guards sets
	var sets []string
	ctx, cancel := context.WithCancel(w.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for list, err := range WatchEndpoints(ctx, c, svc) {
			if err != nil {
				if ctx.Err() == nil {
					w.t.Errorf("watch %s: %v", svc, err)
				}
				return
			}
			mu.Lock()
			sets = append(sets, addresses(list))
			mu.Unlock()
		}
	})
	w.t.Cleanup(func() { cancel(); running.Wait() })
	return func() []string {
		pass(time.Second)
		mu.Lock()
		defer mu.Unlock()
		now := sets
		sets = nil
		return now
	}
}

func addresses(list []Endpoint) string {
	var words []string
	for _, e := range list {
		words = append(words, fmt.Sprintf("%s*%d", e.Address, e.Weight))
	}
	return strings.Join(words, " ")
}
