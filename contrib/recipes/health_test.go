//go:build linux

package recipes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

// patient has the health that it is told.
type patient struct {
	mu      sync.Mutex // guards what follows
	err     error
	hang    chan struct{} // a check returns when it is closed
	checked int
}

func (p *patient) check(context.Context) error {
	p.mu.Lock()
	p.checked++
	err, hang := p.err, p.hang
	p.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return err
}

func (p *patient) becomes(err error, hang chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err, p.hang = err, hang
}

// times returns how often it was checked.
func (p *patient) times() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.checked
}

const up = "/ls/local/up"

// member announces itself while a check passes.
type member struct {
	*Health[*recipe.Presence]
	value atomic.Pointer[string]
}

func announce(ctx context.Context, c *client.Client, name, value string, check Check) (*member, error) {
	m := &member{}
	m.value.Store(&value)
	var err error
	m.Health, err = Healthy(ctx, c, check, func(ctx context.Context) (*recipe.Presence, error) {
		return recipe.Announce(ctx, c, up, name, []byte(*m.value.Load()))
	})
	return m, err
}

// change changes the value.
func (m *member) change(ctx context.Context, value string) error {
	m.value.Store(&value)
	return m.Update(ctx, func(p *recipe.Presence) error { return p.Update(ctx, []byte(value)) })
}

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
		for list, err := range recipe.WatchMembers(ctx, c, up) {
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

func names(list []recipe.Member) string {
	var words []string
	for _, m := range list {
		words = append(words, fmt.Sprintf("%s=%s", m.Name, m.Value))
	}
	return strings.Join(words, " ")
}

// errSick is why a patient is not healthy.
func errSick() error { return api.Errorf(api.Unavailable, "sick") }

// An announcement is withdrawn while a check fails, and put back with its newest value when it passes; others see the
// member go and come.
func TestHealthy(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		reader := w.dial("reader")
		expect := func(what, want string) {
			t.Helper()
			list, err := recipe.Members(w.ctx, reader, up)
			w.ok(err)
			if got := names(list); got != want {
				t.Errorf("%s: %q; want %q", what, got, want)
			}
		}
		sick := &patient{}
		p, err := announce(w.ctx, w.dial("a"), "a", "1", Check{sick.check, time.Second, 3})
		w.ok(err)
		seen := w.watchMembers("watcher")
		pass(1500 * time.Millisecond)
		sick.becomes(errSick(), nil)
		pass(2 * time.Second) // it has failed twice
		expect("after two failures", "a=1")
		sick.becomes(nil, nil)
		pass(time.Second)
		sick.becomes(errSick(), nil)
		pass(2 * time.Second)
		expect("after two again", "a=1")
		pass(time.Second)
		expect("after three in a row", "")
		if err := p.Failing(); !errors.Is(err, api.Unavailable) || p.Err() != nil {
			t.Errorf("health %v, announcement %v", err, p.Err())
		}
		w.failOver()
		ctx, cancel := w.brief(time.Second)
		w.ok(p.change(ctx, "2"))
		cancel()
		pass(10 * time.Second)
		expect("withdrawn for long", "")
		sick.becomes(nil, nil)
		pass(1100 * time.Millisecond)
		expect("it passes", "a=2")
		if p.Failing() != nil {
			t.Error(p.Failing())
		}
		w.ok(p.change(w.ctx, "3"))
		expect("changed while it is shown", "a=3")
		w.rm(reader, up+"/a")
		pass(time.Second)
		expect("somebody has deleted it", "a=3")
		sick.becomes(errSick(), nil)
		pass(5 * time.Second)
		expect("it fails again", "")
		w.ok(p.Withdraw(w.ctx))
		sick.becomes(nil, nil)
		pass(5 * time.Second)
		expect("withdrawn for good", "")
		before := sick.times()
		pass(5 * time.Second)
		if sick.times() != before {
			t.Error("it is still checked")
		}
		seen.mu.Lock()
		defer seen.mu.Unlock()
		var changes []string
		for i, set := range seen.sets {
			if i == 0 || set != seen.sets[i-1] {
				changes = append(changes, set)
			}
		}
		if len(changes) < 4 || changes[0] != "a=1" || changes[1] != "" || changes[2] != "a=2" || changes[len(changes)-1] != "" {
			t.Errorf("seen: %q", changes)
		}
	})
}

// A check that does not return is one that fails, is not called twice at a time, and does not hold up the withdrawal.
func TestHealthyHangs(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		reader, hang, sick := w.dial("reader"), make(chan struct{}), &patient{}
		expect := func(what, want string) {
			t.Helper()
			list, err := recipe.Members(w.ctx, reader, up)
			w.ok(err)
			if got := names(list); got != want {
				t.Errorf("%s: %q; want %q", what, got, want)
			}
		}
		p, err := announce(w.ctx, w.dial("a"), "a", "", Check{sick.check, time.Second, 3})
		w.ok(err)
		sick.becomes(nil, hang)
		pass(3500 * time.Millisecond)
		expect("it hangs for two periods", "a=")
		pass(time.Second)
		expect("it hangs for three", "")
		if p.Failing() == nil || sick.times() != 2 {
			t.Errorf("%v after %d checks", p.Failing(), sick.times())
		}
		sick.becomes(nil, nil)
		close(hang)
		pass(2 * time.Second)
		expect("it has returned", "a=")
		hang = make(chan struct{})
		sick.becomes(nil, hang)
		pass(1500 * time.Millisecond)
		ctx, cancel := w.brief(time.Second)
		defer cancel()
		if err := p.Withdraw(ctx); api.CodeOf(err) != api.DeadlineExceeded {
			t.Errorf("withdrawn while it is checked: %v", err)
		}
		expect("withdrawn", "")
		close(hang)
		w.ok(p.Withdraw(w.ctx))
	})
}

// Who is not healthy at first is announced when it is; a name that another has taken meanwhile, and the end of the
// session, end the announcement.
func TestHealthyLater(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		a, b := w.dial("a"), w.dial("b")
		announceSick := func() (*patient, *member) {
			sick := &patient{err: errSick()}
			p, err := announce(w.ctx, a, "a", "", Check{sick.check, time.Second, 3})
			w.ok(err)
			if list, err := recipe.Members(w.ctx, b, up); err == nil && len(list) > 0 || p.Failing() == nil {
				t.Errorf("announced: %v, health %v", names(list), p.Failing())
			}
			return sick, p
		}
		sick, p := announceSick()
		sick.becomes(nil, nil)
		pass(2 * time.Second)
		if list, err := recipe.Members(w.ctx, b, up); err != nil || names(list) != "a=" {
			t.Errorf("announced: %v, %v", names(list), err)
		}
		w.ok(p.Withdraw(w.ctx))
		sick, p = announceSick()
		other, err := recipe.Announce(w.ctx, b, up, "a", nil)
		w.ok(err)
		sick.becomes(nil, nil)
		w.over(p)
		if err := p.Err(); !errors.Is(err, api.Exists) {
			t.Errorf("another has the name: %v", err)
		}
		w.ok(other.Withdraw(w.ctx))
		w.ok(p.Withdraw(w.ctx))
		_, p = announceSick()
		w.Expire(a.Session())
		w.over(p)
		if err := p.Err(); !errors.Is(err, api.SessionExpired) {
			t.Errorf("the session is over: %v", err)
		}
		w.ok(p.Withdraw(w.ctx))
		for _, check := range []Check{{nil, time.Second, 1}, {sick.check, 0, 1}, {sick.check, time.Second, 0}} {
			if _, err := announce(w.ctx, b, "b", "", check); !errors.Is(err, api.InvalidArgument) {
				t.Errorf("arguments that make no sense: %v", err)
			}
		}
		ctx, cancel := w.brief(time.Second)
		defer cancel()
		_, err = announce(ctx, b, "b", "", Check{func(ctx context.Context) error { <-ctx.Done(); return nil }, time.Minute, 1})
		if !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("the first check takes too long: %v", err)
		}
	})
}

// A stranger who holds the lock of the file keeps it from going while the check fails, and from being made again; but
// that does not end the announcement.
func TestHealthyWhoseFileIsHeld(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		reader, sick := w.dial("reader"), &patient{}
		expect := func(what, want string) {
			t.Helper()
			list, err := recipe.Members(w.ctx, reader, up)
			w.ok(err)
			if got := names(list); got != want {
				t.Errorf("%s: %q; want %q", what, got, want)
			}
		}
		p, err := announce(w.ctx, w.dial("a"), "a", "1", Check{sick.check, time.Second, 1})
		w.ok(err)
		h, err := reader.Open(w.ctx, up+"/a", client.OpenOptions{Write: true})
		w.ok(err)
		_, err = h.Acquire(w.ctx, api.Exclusive)
		w.ok(err)
		sick.becomes(errSick(), nil)
		pass(5 * time.Second)
		sick.becomes(nil, nil)
		pass(5 * time.Second)
		w.ok(p.Err())
		sick.becomes(errSick(), nil)
		pass(2 * time.Second)
		w.ok(h.Close(w.ctx))
		pass(2 * time.Second)
		expect("it fails", "")
		sick.becomes(nil, nil)
		pass(2 * time.Second)
		expect("it passes", "a=1")
		w.ok(p.Withdraw(w.ctx))
		expect("withdrawn", "")
	})
}

// Where the first check fails nothing is announced, not even for a moment: so it does not matter who has the name.
func TestHealthyFirst(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		other, err := recipe.Announce(w.ctx, w.dial("b"), up, "a", nil)
		w.ok(err)
		ctx, cancel := w.brief(time.Second)
		defer cancel()
		p, err := announce(ctx, w.dial("a"), "a", "", Check{(&patient{err: errSick()}).check, time.Second, 3})
		w.ok(err)
		w.ok(p.Withdraw(w.ctx))
		w.ok(other.Withdraw(w.ctx))
	})
}
