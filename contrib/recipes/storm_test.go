//go:build linux

package recipes

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
)

// storm runs clients that do something again and again, and makes trouble for them, until together they
// have done it so often.
type storm struct {
	*world
	model  *claims
	expire func(c *client.Client) // ends a session from outside
	alive  sync.WaitGroup

	mu       sync.Mutex // guards what follows
	left     int
	sessions map[string]*client.Client // by host
}

// newStorm returns one whose model allows most holds of one thing at a time.
func newStorm(w *world, most int) *storm {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour+time.Duration(*rounds)*10*time.Second)
	w.t.Cleanup(cancel)
	w.ctx = ctx
	s := &storm{world: w, model: newClaims(most), left: *rounds, sessions: map[string]*client.Client{}}
	s.expire = func(c *client.Client) {
		_ = s.Replica(s.Master()).ExpireSession(s.ctx, c.Session()) // it may have been closed by now
	}
	return s
}

// live runs a client on a host: one session after another, and in each act, round after round. An
// error of act ends the session only if it is the session's.
func (s *storm) live(host string, act func(c *client.Client, r *rand.Rand) error) {
	s.alive.Go(func() {
		r := rand.New(rand.NewPCG(rand.Uint64(), 1))
		for s.more() {
			c, err := s.try(host)
			if err != nil {
				s.t.Errorf("%s: %v", host, err)
				return
			}
			s.enter(host, c)
			for c.Err() == nil && s.take() {
				_ = act(c, r) // a session that is gone ends the loop; any other error is a round like another
				pass(time.Duration(r.IntN(500)) * time.Millisecond)
			}
			s.enter(host, nil)
			end(c)
		}
	})
}

func (s *storm) more() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left > 0
}

func (s *storm) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left--
	return s.left >= 0
}

func (s *storm) enter(host string, c *client.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[host] = c
}

// hold notes a hold for some time, or until its context ends.
func (s *storm) hold(held context.Context, r *rand.Rand, what string) {
	if held.Err() != nil {
		return
	}
	one := s.model.begin(what)
	defer one.end()
	select {
	case <-held.Done():
	case <-time.After(time.Duration(r.IntN(3_000)) * time.Millisecond):
	}
}

// victim returns a client that has a session, or none.
func (s *storm) victim() (host string, c *client.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for host, c := range s.sessions { // in no order
		if c != nil {
			return host, c
		}
	}
	return "", nil
}

// rage makes trouble until all is done: sessions expire, hosts are cut off, masters fail and hand over.
// calm is more time between.
func (s *storm) rage(calm time.Duration) {
	done := make(chan struct{})
	go func() {
		s.alive.Wait()
		close(done)
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		case <-time.After(calm + rand.N(4*time.Second)):
			s.trouble()
		}
	}
	s.model.check(s.t)
	if s.ctx.Err() != nil {
		s.t.Error("the time of the test was over: somebody waited for ever")
	}
}

func (s *storm) trouble() {
	host, c := s.victim()
	switch n := rand.IntN(20); {
	case n < 8 && c != nil:
		s.expire(c)
	case n < 12 && c != nil:
		if rand.IntN(2) == 0 {
			s.Reset(host) // answers are lost, where Cut delays them
		} else {
			s.Cut(host)
		}
		pass(rand.N(30 * time.Second))
		s.Heal(host)
	case n < 16:
		s.meddle(c)
	case n == 18:
		s.failOver()
	case n == 19:
		s.Transfer()
	}
}

// meddle does what an operator may: it takes a lock away from its holders, or ends a session. Nobody else has what
// they had before they have let go.
func (s *storm) meddle(c *client.Client) {
	operator, err := s.try("operator")
	if err != nil {
		s.t.Errorf("operator: %v", err)
		return
	}
	defer end(operator)
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	if c != nil && rand.IntN(2) == 0 {
		_ = operator.EndSession(ctx, c.Session(), "a drill") // it may have ended
		return
	}
	locks, err := operator.Cell().Locks(ctx, "/ls/local")
	if err != nil || len(locks) == 0 {
		return
	}
	_ = operator.BreakLock(ctx, locks[rand.IntN(len(locks))].Path, "a drill", false) // it may be free
}

// rounds is how many random rounds the tests of the recipes make that must never let one too many
// through, or one too early. The default takes some seconds under the race detector.
var rounds = flag.Int("rounds", 60, "random rounds of each recipe's test")

// claims is the model that recipes of exclusion are checked against: who says that he holds what, told
// by himself, or by the test that has taken it from him.
type claims struct {
	mu    sync.Mutex
	held  map[string]map[*claim]bool // by what is held
	most  int                        // of one thing at a time
	fault error                      // the first
	total int
}

// claim is one hold.
type claim struct {
	of   *claims
	what string
}

func newClaims(most int) *claims { return &claims{held: map[string]map[*claim]bool{}, most: most} }

// begin notes that somebody holds something from now on.
func (c *claims) begin(what string) *claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := &claim{of: c, what: what}
	if c.held[what] == nil {
		c.held[what] = map[*claim]bool{}
	}
	c.held[what][one] = true
	c.total++
	if n := len(c.held[what]); n > c.most && c.fault == nil {
		c.fault = fmt.Errorf("%d hold %s at once, and at most %d may", n, what, c.most)
	}
	return one
}

// end notes that he does not any more, before he says so to the cell.
func (c *claim) end() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	delete(c.of.held[c.what], c)
}

func (c *claims) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		t.Error(c.fault)
	}
}

// try dials a host again and again, as one whose session may end at any time.
func (w *world) try(host string) (*client.Client, error) { return client.New(w.ctx, w.config(host)) }

// end closes a client whose session may be gone.
func end(c *client.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}
