package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// localLease is how long the client believes in a lease of 12 s.
const localLease = 12 * time.Second * 99 / 100

// record keeps what OnState is told, with the time.
type record struct {
	mu      sync.Mutex // guards changes
	changes []timedChange
	began   time.Time
}

type timedChange struct {
	StateChange
	at time.Duration
}

func (r *record) note(c StateChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, timedChange{c, time.Since(r.began)})
}

func (r *record) states() []session.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []session.State
	for _, c := range r.changes {
		list = append(list, c.State)
	}
	return list
}

func (f *fake) recorded() (Config, *record) {
	r := &record{began: f.began}
	cfg := f.config()
	cfg.OnState = r.note
	return cfg, r
}

func closeClient(t *testing.T, c *Client) {
	t.Helper()
	wants(t, "Close", c.Close(t.Context()), nil)
}

// Chubby §2.8: the master blocks a KeepAlive until the lease is nearly over, the
// client sends the next at once, and has one in flight at any time (the fake
// checks that). Chubby §5: they are exchanged about every 7 s.
func TestKeepAliveCadence(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg, r := f.recorded()
		c := f.client(cfg)
		time.Sleep(70 * time.Second)
		synctest.Wait()
		calls := f.heard("KeepAlive")
		if len(calls) != 11 {
			t.Errorf("%d KeepAlives in 70 s, want 11", len(calls))
		}
		for i, k := range calls {
			if want := time.Duration(i) * 7 * time.Second; (k.at - want).Abs() > 50*time.Millisecond {
				t.Errorf("KeepAlive %d was sent at %v, want %v", i, k.at, want)
			}
		}
		if got := r.states(); len(got) != 0 || c.State() != session.Safe {
			t.Errorf("state changes %v, state %v", got, c.State())
		}
		closeClient(t, c)
		if n := len(f.heard("EndSession")); n != 1 {
			t.Errorf("Close sent %d EndSession", n)
		}
		if !errors.Is(c.Err(), Closed) || !errors.Is(c.Err(), api.SessionExpired) {
			t.Errorf("Err after Close is %v", c.Err())
		}
	})
}

// Chubby §2.8: on local expiry the session is in jeopardy, calls block, and go
// through once it is safe again.
func TestJeopardyThenSafe(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg, r := f.recorded()
		c := f.client(cfg)
		h := opened(t, c, "/ls/foo/x", OpenOptions{Write: true, Create: File, LockDelay: 10 * time.Second})
		lasts := time.Since(f.began) // the lease counts from the KeepAlive that was answered last: the session is new
		f.cut(addresses()...)
		time.Sleep(localLease - lasts - time.Millisecond)
		synctest.Wait()
		if c.State() != session.Safe || len(r.states()) != 0 {
			t.Errorf("before the lease is over: %v %v", c.State(), r.states())
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := r.states(); !slices.Equal(got, []session.State{session.Jeopardy}) {
			t.Fatalf("when the lease is over: %v", got)
		}
		wrote := make(chan time.Duration)
		go func() {
			wants(t, "SetContents", second(h.SetContents(t.Context(), []byte("one"))), nil)
			wrote <- time.Since(f.began)
		}()
		time.Sleep(30 * time.Second)
		if n := len(f.heard("SetContents")); n != 0 || c.State() != session.Jeopardy {
			t.Errorf("in jeopardy %d writes were sent; state %v", n, c.State())
		}
		f.elect("b:1")
		f.heal()
		healed := time.Since(f.began)
		if at := <-wrote; at < healed || at > healed+2*time.Second {
			t.Errorf("healed at %v, the write came through at %v", healed, at)
		}
		synctest.Wait()
		if got := r.states(); !slices.Equal(got, []session.State{session.Jeopardy, session.Safe}) {
			t.Errorf("states %v", got)
		}
		if c.Epoch() != 6 || f.state().writes != 1 {
			t.Errorf("epoch %d, %d writes", c.Epoch(), f.state().writes)
		}
	})
}

// Chubby §2.8: after the grace period the session is gone for good; calls that
// blocked fail, and every later one.
func TestJeopardyThenGone(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg, r := f.recorded()
		c := f.client(cfg)
		h := lockable(t, c, 0)
		l := acquired(t, h)
		f.cut(addresses()...)
		time.Sleep(localLease + time.Second)
		blocked := make(chan error)
		go func() { _, err := h.SetContents(t.Context(), nil); blocked <- err }()
		if err := <-blocked; !errors.Is(err, api.SessionExpired) || !errors.Is(err, GraceOver) {
			t.Errorf("the blocked call: %v", err)
		}
		over := localLease + 45*time.Second
		if at := time.Since(f.began); at < over || at > over+10*time.Millisecond {
			t.Errorf("the session was gone at %v, want %v", at, over)
		}
		<-c.Done()
		f.heal()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if _, err := h.Stat(t.Context()); !errors.Is(err, GraceOver) || c.State() != session.Gone {
			t.Errorf("later: %v, %v", err, c.State())
		}
		if got := r.states(); !slices.Equal(got, []session.State{session.Jeopardy, session.Gone}) {
			t.Errorf("states %v", got)
		}
		if !errors.Is(l.Err(), LeaseNearEnd) || l.ExclusiveUntil() != 0 {
			t.Errorf("the lock: %v, %v", l.Err(), l.ExclusiveUntil())
		}
		wants(t, "Release", l.Release(t.Context()), api.SessionExpired)
		wants(t, "Close of a handle never wants for a session that is gone", h.Close(t.Context()), nil)
	})
}

// A session whose end the master announces is gone at once, with its locks.
func TestEndedByCell(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg, r := f.recorded()
		c := f.client(cfg)
		h := opened(t, c, "/ls/foo/x", OpenOptions{Write: true, Create: File, LockDelay: time.Minute})
		l := ok(h.TryAcquire(t.Context(), api.Exclusive))(t)
		f.mu.Lock()
		for _, s := range f.sessions {
			s.ended = true
		}
		f.mu.Unlock()
		if _, err := h.Stat(t.Context()); !errors.Is(err, api.SessionExpired) || c.State() != session.Gone {
			t.Errorf("Stat: %v, state %v", err, c.State())
		}
		<-l.Context().Done()
		synctest.Wait()
		if cause := context.Cause(l.Context()); !errors.Is(cause, EndedByCell) || !errors.Is(c.Err(), EndedByCell) {
			t.Errorf("causes %v, %v", cause, c.Err())
		}
		if l.ExclusiveUntil() != 0 || !slices.Equal(r.states(), []session.State{session.Gone}) {
			t.Errorf("exclusive for %v, states %v", l.ExclusiveUntil(), r.states())
		}
	})
}

// Replies of a deposed master, and replies overtaken by newer ones, extend
// nothing: neither the lease nor the epoch moves.
func TestStaleGrants(t *testing.T) {
	inSession(t, func(t *testing.T, _ *fake, c *Client) {
		b := c.session
		now := b.clock()
		for _, step := range []struct {
			name    string
			grant   session.Grant
			want    grantEffect
			extends bool
		}{
			{"a newer epoch", session.Grant{Epoch: 9, Number: 3, Lease: 20 * time.Second}, grantNewEpoch, true},
			{"an older epoch", session.Grant{Epoch: 8, Number: 50, Lease: time.Minute}, grantStale, false},
			{"the same grant again", session.Grant{Epoch: 9, Number: 3, Lease: time.Minute}, grantIgnored, false},
			{"an older grant", session.Grant{Epoch: 9, Number: 2, Lease: time.Minute}, grantIgnored, false},
			{"a newer grant", session.Grant{Epoch: 9, Number: 4, Lease: 30 * time.Second}, grantExtended, true},
		} {
			left := c.Left()
			if got := b.applyGrant(now, step.grant); got != step.want || (c.Left() > left) != step.extends {
				t.Errorf("%s: worth %d, left %v to %v", step.name, got, left, c.Left())
			}
		}
		if c.Epoch() != 9 {
			t.Errorf("epoch %d", c.Epoch())
		}
		b.mu.Lock()
		b.epoch = 5 // the fake's, so that the client can be closed
		b.mu.Unlock()
	})
}

// The first epoch's sequence numbers say nothing of the next one's.
func TestEventsAcrossEpochs(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		s := f.only()
		f.mu.Lock()
		for range 3 {
			s.queue(&chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_CONFLICTING_LOCK})
		}
		f.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		f.mu.Lock()
		if s.acked != 3 {
			t.Errorf("acknowledged %d, want 3", s.acked)
		}
		f.mu.Unlock()
		f.elect("c:1")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		f.mu.Lock()
		if s.acked != 1 || len(s.events) != 0 {
			t.Errorf("in the new epoch acknowledged %d, want 1; left %v", s.acked, s.events)
		}
		f.mu.Unlock()
	})
}

// Why the cell does not answer is said with the jeopardy and with the end, as the replicas say it, once for all that say the same.
func TestSilenceHasItsReason(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		var mu sync.Mutex
		var heard string
		cfg := f.config()
		cfg.OnState = func(change StateChange) {
			mu.Lock()
			defer mu.Unlock()
			if change.State == session.Jeopardy {
				heard = change.Heard
			}
		}
		c := f.client(cfg)
		time.Sleep(time.Second)
		f.when(func(s seen) bool { return s.method == "KeepAlive" || s.method == "Locate" }, fail(api.Errorf(api.Unauthenticated, "the certificate has expired")))
		time.Sleep(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for what, text := range map[string]string{"jeopardy": heard, "the end": fmt.Sprint(c.Err())} {
			if strings.Count(text, "the certificate has expired") != 1 || !strings.Contains(text, strings.Join(addresses(), ", ")+": ") {
				t.Errorf("%s is told with %q", what, text)
			}
		}
	})
}
