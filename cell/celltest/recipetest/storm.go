package recipetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
)

// Claims are who holds what, as the holders say, and the test that has taken something from them.
type Claims struct {
	mu    sync.Mutex // guards what follows
	held  map[string]int
	most  int   // of one thing at a time
	fault error // the first
	total int
}

// NewClaims returns Claims of at most so much of one thing at a time.
func NewClaims(most int) *Claims { return &Claims{held: map[string]int{}, most: most} }

// Begin notes that a client holds so much of something, until end, which comes before the client tells the cell.
func (c *Claims) Begin(what string, weight int) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total++
	if c.held[what] += weight; c.held[what] > c.most && c.fault == nil {
		c.fault = fmt.Errorf("%d of %s are held at once, and at most %d may be", c.held[what], what, c.most)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held[what] -= weight
	}
}

// Check fails the test if there was too much of something, or if there were fewer claims than least.
func (c *Claims) Check(t *testing.T, least int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		t.Error(c.fault)
	}
	if c.total < least {
		t.Errorf("only %d holds", c.total)
	}
}

// Storm runs clients that do something again and again, and makes trouble for them, until together they have done it
// as often as was asked for.
type Storm struct {
	*World
	Model  *Claims
	Expire func(c *client.Client) // ends a session from outside
	alive  sync.WaitGroup

	mu       sync.Mutex // guards what follows
	left     int
	sessions map[string]*client.Client // by host
}

// NewStorm returns one of so many rounds, whose model allows most holds of one thing at a time.
func NewStorm(w *World, most, rounds int) *Storm {
	ctx, cancel := context.WithTimeout(w.T.Context(), time.Hour+time.Duration(rounds)*10*time.Second)
	w.T.Cleanup(cancel)
	w.Ctx = ctx
	s := &Storm{World: w, Model: NewClaims(most), left: rounds, sessions: map[string]*client.Client{}}
	s.Expire = func(c *client.Client) {
		_ = s.Replica(s.Master()).ExpireSession(s.Ctx, c.Session()) // it may have been closed by now
	}
	return s
}

// Live runs a client on a host: one session after another, and in each act, round after round. An error of act ends
// the session only if it is the session's.
func (s *Storm) Live(host string, act func(c *client.Client, r *rand.Rand) error) {
	s.alive.Go(func() {
		r := rand.New(rand.NewPCG(rand.Uint64(), 1))
		for s.hasLeft(0) {
			c, err := client.New(s.Ctx, s.ConfigOf(host))
			if err != nil {
				s.T.Errorf("%s: %v", host, err)
				return
			}
			s.enter(host, c)
			for c.Err() == nil && s.hasLeft(1) {
				_ = act(c, r) // a session that is gone ends the loop; any other error is a round like another
				Pass(time.Duration(r.IntN(500)) * time.Millisecond)
			}
			s.enter(host, nil)
			end(c)
		}
	})
}

// hasLeft takes so many of the rounds that are left, and reports whether there were some.
func (s *Storm) hasLeft(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left -= n
	return s.left+n > 0
}

func (s *Storm) enter(host string, c *client.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[host] = c
}

// end closes a client whose session may be gone.
func end(c *client.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

// Hold notes a hold in the model for some time, or until its context ends.
func (s *Storm) Hold(held context.Context, r *rand.Rand, what string, weight int) {
	if held.Err() != nil {
		return
	}
	defer s.Model.Begin(what, weight)()
	select {
	case <-held.Done():
	case <-time.After(time.Duration(r.IntN(3_000)) * time.Millisecond):
	}
}

// Rage makes trouble until all is done: sessions expire, hosts are cut off, masters fail and hand over. calm is more
// time between. It then checks the model, which wants least holds.
func (s *Storm) Rage(calm time.Duration, least int) {
	s.T.Helper()
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
	s.Model.Check(s.T, least)
	if s.Ctx.Err() != nil {
		s.T.Error("the time of the test was over: a client waited without end")
	}
}

// victim returns a client that has a session, or none.
func (s *Storm) victim() (host string, c *client.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for host, c := range s.sessions { // in no order
		if c != nil {
			return host, c
		}
	}
	return "", nil
}

func (s *Storm) trouble() {
	host, c := s.victim()
	switch n := rand.IntN(20); {
	case n < 8 && c != nil:
		s.Expire(c)
	case n < 12 && c != nil:
		if rand.IntN(2) == 0 {
			s.Reset(host) // answers are lost, where Cut delays them
		} else {
			s.Cut(host)
		}
		Pass(rand.N(30 * time.Second))
		s.Heal(host)
	case n < 16:
		s.meddle(c)
	case n == 18:
		s.Succeed()
	case n == 19:
		s.Transfer()
	}
}

// meddle does what an operator may: it takes a lock away from its holders, or ends a session. No other has what they
// had before they have let go.
func (s *Storm) meddle(c *client.Client) {
	operator, err := client.New(s.Ctx, s.ConfigOf("operator"))
	if err != nil {
		s.T.Errorf("operator: %v", err)
		return
	}
	defer end(operator)
	ctx, cancel := s.Brief(time.Minute)
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
