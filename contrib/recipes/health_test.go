//go:build linux

package recipes

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
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

func names(list []recipe.Member) string {
	var words []string
	for _, m := range list {
		words = append(words, fmt.Sprintf("%s=%s", m.Name, m.Value))
	}
	return strings.Join(words, " ")
}

// expect returns a function that checks who is announced.
func (w *world) expect(reader *client.Client) func(what, want string) {
	return func(what, want string) {
		w.T.Helper()
		list, err := recipe.Members(w.Ctx, reader, up)
		w.OK(err)
		if got := names(list); got != want {
			w.T.Errorf("%s: %q; want %q", what, got, want)
		}
	}
}

// errSick is why a patient is not healthy.
func errSick() error { return api.Errorf(api.Unavailable, "sick") }

// An announcement is withdrawn while a check fails, and put back with its newest value when it passes; others see the
// member go and come.
func TestHealthy(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		reader := w.Client("reader")
		expect := w.expect(reader)
		sick := &patient{}
		p, err := announce(w.Ctx, w.Client("a"), "a", "1", Check{sick.check, time.Second, 3})
		w.OK(err)
		watcher := w.Client("watcher")
		seen := recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[[]recipe.Member, error] {
			return recipe.WatchMembers(ctx, watcher, up)
		})
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
		w.Succeed()
		ctx, cancel := w.Brief(time.Second)
		w.OK(p.change(ctx, "2"))
		cancel()
		pass(10 * time.Second)
		expect("withdrawn for long", "")
		sick.becomes(nil, nil)
		pass(1100 * time.Millisecond)
		expect("it passes", "a=2")
		if p.Failing() != nil {
			t.Error(p.Failing())
		}
		w.OK(p.change(w.Ctx, "3"))
		expect("changed while it is shown", "a=3")
		w.Rm(reader, up+"/a")
		pass(time.Second)
		expect("somebody has deleted it", "a=3")
		sick.becomes(errSick(), nil)
		pass(5 * time.Second)
		expect("it fails again", "")
		w.OK(p.Withdraw(w.Ctx))
		sick.becomes(nil, nil)
		pass(5 * time.Second)
		expect("withdrawn for good", "")
		before := sick.times()
		pass(5 * time.Second)
		if sick.times() != before {
			t.Error("it is still checked")
		}
		var changes []string
		for _, list := range seen.Heard() {
			if set := names(list); len(changes) == 0 || set != changes[len(changes)-1] {
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
		reader, hang, sick := w.Client("reader"), make(chan struct{}), &patient{}
		expect := w.expect(reader)
		p, err := announce(w.Ctx, w.Client("a"), "a", "", Check{sick.check, time.Second, 3})
		w.OK(err)
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
		ctx, cancel := w.Brief(time.Second)
		defer cancel()
		if err := p.Withdraw(ctx); api.CodeOf(err) != api.DeadlineExceeded {
			t.Errorf("withdrawn while it is checked: %v", err)
		}
		expect("withdrawn", "")
		close(hang)
		w.OK(p.Withdraw(w.Ctx))
	})
}

// Who is not healthy at first is announced when it is; a name that another has taken meanwhile, and the end of the
// session, end the announcement.
func TestHealthyLater(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		a, b := w.Client("a"), w.Client("b")
		announceSick := func() (*patient, *member) {
			sick := &patient{err: errSick()}
			p, err := announce(w.Ctx, a, "a", "", Check{sick.check, time.Second, 3})
			w.OK(err)
			if list, err := recipe.Members(w.Ctx, b, up); err == nil && len(list) > 0 || p.Failing() == nil {
				t.Errorf("announced: %v, health %v", names(list), p.Failing())
			}
			return sick, p
		}
		sick, p := announceSick()
		sick.becomes(nil, nil)
		pass(2 * time.Second)
		if list, err := recipe.Members(w.Ctx, b, up); err != nil || names(list) != "a=" {
			t.Errorf("announced: %v, %v", names(list), err)
		}
		w.OK(p.Withdraw(w.Ctx))
		sick, p = announceSick()
		other, err := recipe.Announce(w.Ctx, b, up, "a", nil)
		w.OK(err)
		sick.becomes(nil, nil)
		w.Ends(p)
		if err := p.Err(); !errors.Is(err, api.Exists) {
			t.Errorf("another has the name: %v", err)
		}
		w.OK(other.Withdraw(w.Ctx))
		w.OK(p.Withdraw(w.Ctx))
		_, p = announceSick()
		w.Expire(a.Session())
		w.Ends(p)
		if err := p.Err(); !errors.Is(err, api.SessionExpired) {
			t.Errorf("the session is over: %v", err)
		}
		w.OK(p.Withdraw(w.Ctx))
		for _, check := range []Check{{nil, time.Second, 1}, {sick.check, 0, 1}, {sick.check, time.Second, 0}} {
			if _, err := announce(w.Ctx, b, "b", "", check); !errors.Is(err, api.InvalidArgument) {
				t.Errorf("arguments that make no sense: %v", err)
			}
		}
		ctx, cancel := w.Brief(time.Second)
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
		reader, sick := w.Client("reader"), &patient{}
		expect := w.expect(reader)
		p, err := announce(w.Ctx, w.Client("a"), "a", "1", Check{sick.check, time.Second, 1})
		w.OK(err)
		h, err := reader.Open(w.Ctx, up+"/a", client.OpenOptions{Write: true})
		w.OK(err)
		_, err = h.Acquire(w.Ctx, api.Exclusive)
		w.OK(err)
		sick.becomes(errSick(), nil)
		pass(5 * time.Second)
		sick.becomes(nil, nil)
		pass(5 * time.Second)
		w.OK(p.Err())
		sick.becomes(errSick(), nil)
		pass(2 * time.Second)
		w.OK(h.Close(w.Ctx))
		pass(2 * time.Second)
		expect("it fails", "")
		sick.becomes(nil, nil)
		pass(2 * time.Second)
		expect("it passes", "a=1")
		w.OK(p.Withdraw(w.Ctx))
		expect("withdrawn", "")
	})
}

// Where the first check fails nothing is announced, not even for a moment: so it does not matter who has the name.
func TestHealthyFirst(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		other, err := recipe.Announce(w.Ctx, w.Client("b"), up, "a", nil)
		w.OK(err)
		ctx, cancel := w.Brief(time.Second)
		defer cancel()
		p, err := announce(ctx, w.Client("a"), "a", "", Check{(&patient{err: errSick()}).check, time.Second, 3})
		w.OK(err)
		w.OK(p.Withdraw(w.Ctx))
		w.OK(other.Withdraw(w.Ctx))
	})
}

// The session ends while the machine is paused, and a check fails when it wakes up. The announcement still ends with
// SessionExpired: programs that renew sessions go by that code.
func TestHealthyAfterAPause(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		for range 5 {
			sick, hang := &patient{}, make(chan struct{})
			p, err := announce(w.Ctx, w.Client("a"), "a", "", Check{sick.check, 5 * time.Minute, 1})
			w.OK(err)
			sick.becomes(errSick(), hang)
			pass(5*time.Minute + time.Second)
			w.Pause("a")
			pass(2 * time.Minute)
			w.Resume("a")
			close(hang)
			w.Ends(p)
			if err := p.Err(); !errors.Is(err, api.SessionExpired) {
				t.Errorf("the session is over: %v", err)
			}
			w.OK(p.Withdraw(w.Ctx))
		}
	})
}
