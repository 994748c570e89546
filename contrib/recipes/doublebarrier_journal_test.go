package recipes

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
	"github.com/chubbylock/chubby/internal/hold"
)

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
		if hold.Gone(err) || errors.Is(err, api.InvalidArgument) {
			j.note(func(int) { j.lost = err })
		}
		if err == nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
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
