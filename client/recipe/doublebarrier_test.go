//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const partyDir = "/ls/local/party"

// journal is what happened at a double barrier, as participants tell it, in one order.
type journal struct {
	mu    sync.Mutex // guards what follows
	clock int
	turns []*turn
	dead  map[api.SessionID]int // when somebody was about to end the session
	gone  map[api.SessionID]int // when the cell had said that it was ended
	lost  error                 // what Leave said of a state that is not there, of which there is none
}

// turn is one call of Enter and what followed. Times are those of the journal; 0 is never.
type turn struct {
	session api.SessionID
	begun   int    // Enter was called
	in      int    // it returned a pass
	round   uint64 // of the pass
	failed  int    // it returned an error
	ghost   bool   // after which it may have been counted
	lost    int    // the context of the pass ended
	leaving int    // Leave was called
	out     int    // it returned
}

func newJournal() *journal {
	return &journal{dead: map[api.SessionID]int{}, gone: map[api.SessionID]int{}}
}

func (j *journal) note(f func(now int)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.clock++
	f(j.clock)
}

// over returns when a turn had left, or might be dead, at the earliest.
func (j *journal) over(t *turn) int {
	over := j.clock + 1
	for _, at := range []int{t.lost, t.leaving, j.dead[t.session]} {
		if at > 0 {
			over = min(over, at)
		}
	}
	return over
}

// lived returns until when one who failed to enter may have lived.
func (j *journal) lived(t *turn) int {
	if at := j.gone[t.session]; at > 0 {
		return min(at, t.failed)
	}
	return t.failed
}

// check judges the journal of a barrier for n, and returns how many rounds there were.
func (j *journal) check(n int) (int, []error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if j.lost != nil {
		fault("the state was there all the time: %v", j.lost)
	}
	rounds := map[uint64][]*turn{}
	var ghosts []*turn
	for _, t := range j.turns {
		if t.in > 0 {
			rounds[t.round] = append(rounds[t.round], t)
		} else if t.ghost {
			ghosts = append(ghosts, t)
		}
	}
	slices.SortFunc(ghosts, func(a, b *turn) int { return j.lived(a) - j.lived(b) })
	var numbers []uint64
	for r := range rounds {
		numbers = append(numbers, r)
	}
	slices.Sort(numbers)
	for i, r := range numbers {
		all := rounds[r]
		first, last := j.clock+1, 0
		for _, t := range all {
			first, last = min(first, t.in), max(last, t.begun)
		}
		if last > first {
			fault("round %d: one was let in at %d, before another of it came at %d", r, first, last)
		}
		missing := n - len(all)
		ghosts = slices.DeleteFunc(ghosts, func(g *turn) bool {
			counts := missing > 0 && g.begun < first && j.lived(g) >= last
			if counts {
				missing--
			}
			return counts
		})
		if missing != 0 {
			fault("round %d: %d were let in, and %d of those who had come are missing, of %d", r, len(all), missing, n)
		}
		for _, t := range all {
			for _, leaver := range all {
				if over := j.over(t); leaver != t && leaver.out > 0 && leaver.out < over {
					fault("round %d: one was let out at %d, before another left or died at %d", r, leaver.out, over)
				}
			}
			if i+1 < len(numbers) {
				for _, next := range rounds[numbers[i+1]] {
					if over := j.over(t); next.in < over {
						fault("round %d: one was let in at %d, before one of the round before left or died at %d", numbers[i+1], next.in, over)
					}
				}
			}
		}
	}
	return len(numbers), faults
}

// participate makes one turn.
func (j *journal) participate(ctx context.Context, c *client.Client, n int, r *rand.Rand) error {
	one := &turn{session: c.Session()}
	j.note(func(now int) { one.begun = now; j.turns = append(j.turns, one) })
	limit := 40 * time.Second
	if r.IntN(3) == 0 {
		limit = time.Duration(r.IntN(2_000)) * time.Millisecond
	}
	entering, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p, err := NewDoubleBarrier(c, partyDir, n).Enter(entering)
	if err != nil {
		j.note(func(now int) {
			one.failed, one.ghost = now, api.CodeOf(err) != api.Cancelled && api.CodeOf(err) != api.DeadlineExceeded
		})
		return err
	}
	j.note(func(now int) { one.in, one.round = now, p.Round() })
	stop := context.AfterFunc(p.Context(), func() { j.note(func(now int) { one.lost = now }) })
	select {
	case <-p.Context().Done():
	case <-time.After(time.Duration(r.IntN(2_000)) * time.Millisecond):
	}
	j.note(func(now int) { one.leaving = now })
	stop()
	for {
		leaving, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(4_000))*time.Millisecond)
		err := p.Leave(leaving)
		cancel()
		if err == nil {
			j.note(func(now int) { one.out = now })
		}
		if gone(err) || errors.Is(err, api.InvalidArgument) {
			j.note(func(int) { j.lost = err })
		}
		if err == nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// Nobody is let in before n have come, or out before all have left, round after round, whoever dies,
// gives up or takes over.
func TestDoubleBarrierRandom(t *testing.T) {
	t.Parallel()
	const n, clients = 3, 5
	inWorld(t, func(w *world) {
		j := newJournal()
		s := newStorm(w, 0)
		s.expire = func(c *client.Client) {
			j.note(func(now int) { j.dead[c.Session()] = now })
			if err := s.Replica(s.Master()).ExpireSession(s.ctx, c.Session()); err == nil {
				j.note(func(now int) { j.gone[c.Session()] = now })
			}
		}
		began := time.Now()
		for i := range clients {
			// What comes at a moment in virtual time comes before everything else; so the ways have a length.
			s.Slow(fmt.Sprintf("h%d", i), time.Duration(1+rand.IntN(200))*time.Millisecond)
			s.live(fmt.Sprintf("h%d", i), func(c *client.Client, r *rand.Rand) error { return j.participate(s.ctx, c, n, r) })
		}
		s.rage(3 * time.Second)
		made, faults := j.check(n)
		for _, fault := range faults[:min(len(faults), 10)] {
			t.Error(fault)
		}
		t.Logf("%d rounds of %d turns in %v of virtual time", made, len(j.turns), time.Since(began))
		if made < *rounds/10 {
			t.Errorf("only %d rounds in %d turns", made, *rounds)
		}
	})
}

// The check itself finds what is wrong.
func TestJournalJudges(t *testing.T) {
	three := func(change func(j *journal, a, b, c *turn)) []error {
		j := newJournal()
		a := &turn{session: 1, begun: 1, in: 4, round: 1, leaving: 7, out: 10}
		b := &turn{session: 2, begun: 2, in: 5, round: 1, leaving: 8, out: 11}
		c := &turn{session: 3, begun: 3, in: 6, round: 1, leaving: 9, out: 12}
		j.turns, j.clock = []*turn{a, b, c}, 20
		change(j, a, b, c)
		_, faults := j.check(3)
		return faults
	}
	if faults := three(func(*journal, *turn, *turn, *turn) {}); faults != nil {
		t.Error(faults)
	}
	for name, change := range map[string]func(j *journal, a, b, c *turn){
		"before another of it came":   func(_ *journal, _, _, c *turn) { c.begun = 5 },
		"are missing":                 func(j *journal, _, _, c *turn) { j.turns = j.turns[:2]; c.in = 0 },
		"before another left or died": func(_ *journal, _, _, c *turn) { c.leaving = 11 },
		"one of the round before left": func(j *journal, a, b, c *turn) {
			c.leaving, c.out = 0, 0
			a.out, b.out = 0, 0
			j.turns = append(j.turns, &turn{round: 2, begun: 13, in: 14})
		},
		"1 of those who had": func(_ *journal, _, b, c *turn) { b.begun, c.begun, c.in, c.failed, c.ghost = 3, 1, 0, 2, true },
	} {
		if faults := errors.Join(three(change)...); faults == nil || !strings.Contains(faults.Error(), name) {
			t.Errorf("%s: %v", name, faults)
		}
	}
}

// party enters n and returns their passes.
func (w *world) party(n int, clients ...*client.Client) []*Pass {
	w.t.Helper()
	passes := make([]*Pass, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			p, err := NewDoubleBarrier(c, partyDir, n).Enter(w.ctx)
			if err != nil {
				w.t.Error(err)
				return
			}
			passes[i] = p
		})
	}
	all.Wait()
	return passes
}

// Two enter and leave together, over fail-overs; one that dies inside is not waited for.
func TestDoubleBarrier(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two, three := w.dial("h1"), w.dial("h2"), w.dial("h3")
		passes := w.party(2, one, two)
		if passes[0].Round() != 1 || passes[1].Round() != 1 {
			t.Fatalf("rounds %d and %d", passes[0].Round(), passes[1].Round())
		}
		ctx, cancel := w.brief(5 * time.Second)
		if _, err := NewDoubleBarrier(three, partyDir, 2).Enter(ctx); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("a third: %v", err)
		}
		cancel()
		left := make(chan error)
		go func() { left <- passes[0].Leave(w.ctx) }()
		w.failOver()
		select {
		case err := <-left:
			t.Errorf("left alone: %v", err)
		case <-time.After(30 * time.Second):
		}
		w.ok(passes[1].Leave(w.ctx))
		w.ok(<-left)
		w.ok(passes[1].Leave(w.ctx)) // again
		passes = w.party(2, two, three)
		go func() { left <- passes[0].Leave(w.ctx) }()
		w.Cut("h3")
		<-passes[1].Context().Done()
		select {
		case err := <-left:
			t.Errorf("let out before the other's context ended: %v", err)
		default:
		}
		w.ok(<-left)
		if _, err := NewDoubleBarrier(one, partyDir, 4).Enter(w.ctx); !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "made for 4, and the directory says 2") {
			t.Errorf("another size: %v", err)
		}
	})
}

// One who has come and died is not counted, nor one who gave up.
func TestDoubleBarrierDeathAtTheDoor(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two, three := w.dial("h1"), w.dial("h2"), w.dial("h3")
		dead := make(chan error)
		go func() {
			_, err := NewDoubleBarrier(one, partyDir, 2).Enter(w.ctx)
			dead <- err
		}()
		pass(time.Second)
		w.Expire(one.Session())
		if err := <-dead; !errors.Is(err, api.SessionExpired) {
			t.Errorf("the dead: %v", err)
		}
		ctx, cancel := w.brief(time.Minute)
		defer cancel()
		if _, err := NewDoubleBarrier(two, partyDir, 2).Enter(ctx); !errors.Is(err, api.DeadlineExceeded) {
			t.Errorf("the second: %v", err)
		}
		passes := w.party(2, two, three)
		for _, p := range passes {
			if p == nil || p.Round() != 1 {
				t.Errorf("%+v", p)
			}
		}
	})
}

// A round whose members have all died is over for those who wait for the next.
func TestDoubleBarrierAllDie(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two, three, four := w.dial("h1"), w.dial("h2"), w.dial("h3"), w.dial("h4")
		w.party(2, one, two)
		w.Expire(one.Session())
		w.Expire(two.Session())
		for _, p := range w.party(2, three, four) {
			if p == nil || p.Round() != 2 {
				t.Errorf("%+v", p)
			}
		}
	})
}

// One who is inside, and whose state is deleted, or made anew, is told, and leaves nothing.
func TestDoubleBarrierStateIsDeleted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state string // that is made instead
		code  api.Code
	}{
		"deleted":         {"", api.NotFound},
		"of another size": {`{"size":3,"round":9}`, api.InvalidArgument},
		"of no round yet": {`{"size":2,"round":2}`, api.NotFound},
		"of an old round": {`{"size":2,"round":1,"inside":true,"members":{"x":"y"}}`, api.NotFound},
		"of nothing":      {`?`, api.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				one, two, operator := w.dial("h1"), w.dial("h2"), w.dial("operator")
				var all sync.WaitGroup
				for _, p := range w.party(2, one, two) {
					all.Go(func() { _ = p.Leave(w.ctx) })
				}
				all.Wait()
				passes := w.party(2, one, two)
				left := make(chan error, 2)
				go func() { left <- passes[0].Leave(w.ctx) }()
				pass(time.Second)
				w.rm(operator, partyDir+"/"+stateName)
				if err := <-left; !gone(err) {
					t.Errorf("who waited: %v", err)
				}
				if c.state != "" {
					w.put(operator, partyDir+"/"+stateName, c.state)
				}
				ctx, cancel := w.brief(time.Minute)
				defer cancel()
				if err := passes[1].Leave(ctx); api.CodeOf(err) != c.code {
					t.Errorf("who came: %v", err)
				}
				if members, err := Members(w.ctx, operator, partyDir); err != nil || len(members) != 0 {
					t.Errorf("left behind: %v %v", members, err)
				}
				for _, p := range passes {
					if p.Context().Err() == nil {
						t.Error("it holds its lock")
					}
				}
			})
		})
	}
}

// One who gives up is in if the round has begun with it, and is not counted if it has not.
func TestDoubleBarrierGivesUp(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const way = 100 * time.Millisecond
		w.Slow("h1", way)
		one, two := w.dial("h1"), w.dial("h2")
		counted := 0
		for i := range 24 {
			// The other comes some time before or after this one gives up, and hears of it.
			ctx, cancel := w.brief(10 * time.Second)
			type result struct {
				pass *Pass
				err  error
			}
			first, second := make(chan result, 1), make(chan result, 1)
			go func() {
				p, err := NewDoubleBarrier(one, partyDir, 2).Enter(ctx)
				first <- result{p, err}
			}()
			pass(3*time.Second - time.Duration(i-3)*way/8)
			waiting, stop := w.brief(10 * time.Second)
			go func() {
				p, err := NewDoubleBarrier(two, partyDir, 2).Enter(waiting)
				second <- result{p, err}
			}()
			a, b := <-first, <-second
			cancel()
			stop()
			switch {
			case (a.err == nil) != (b.err == nil):
				t.Errorf("%d: %v, and the other: %v", i, a.err, b.err)
			case a.err == nil:
				if ctx.Err() != nil {
					counted++
				}
				left := make(chan error, 1)
				go func() { left <- a.pass.Leave(w.ctx) }()
				w.ok(b.pass.Leave(w.ctx))
				w.ok(<-left)
			}
		}
		if counted == 0 {
			t.Error("none was counted that gave up")
		}
	})
}
