package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/session"
)

// While no connection can be had for calls, and the sessions have theirs, the replicas are
// not asked for the master each time that a call fails.
func TestSearchesArePaced(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.NoCache = true
		c := f.client(cfg)
		h := lockable(t, c, 0)
		time.Sleep(3 * time.Minute)
		f.mu.Lock()
		f.down["a:1"] = true
		f.mu.Unlock()
		f.script(func(s seen) verb {
			if s.method == "Locate" {
				return after(time.Millisecond)
			}
			return nil
		})
		const limit, most = 10 * time.Second, 10 + 4*10 // with four a second, once the pauses have grown
		before, began := len(f.heard("Locate")), time.Now()
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				if _, err := h.Stat(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(limit)
		if n := len(f.heard("Locate")) - before; n > most*len(addresses()) {
			t.Errorf("the replicas were asked for the master %d times in %v", n, limit)
		}
		f.heal()
		calls.Wait()
		if took := time.Since(began) - limit; took > 2*maxPause+reconnectLongest {
			t.Errorf("calls went on after %v", took)
		}
		closeClient(t, c)
	})
}

// A search that is given up before it has begun asks nobody, and says nothing of anybody.
func TestSearchGivenUpBeforeItBegan(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		synctest.Wait() // the first KeepAlive has been sent
		said := c.cell.locator.diagnosis()
		c.cell.locator.mu.Lock()
		c.cell.locator.master, c.cell.locator.nextSearchAt = nil, c.cfg.Clock().Add(maxPause)
		c.cell.locator.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), minPause)
		defer cancel()
		if _, err := c.cell.locator.locate(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("find: %v", err)
		}
		synctest.Wait()
		if now := c.cell.locator.diagnosis(); now != said {
			t.Errorf("it says %q, and was told %q", now, said)
		}
		closeClient(t, c)
	})
}

// The pauses between searches grow only while searches find the same master again, one
// after the other.
func TestPausesOfSearchesEnd(t *testing.T) {
	var now session.Instant
	f := &locator{cfg: Config{Clock: func() session.Instant { return now }}}
	rest := func(again bool) time.Duration {
		f.paceSearches(again)
		return f.nextSearchAt.Sub(now)
	}
	for range 20 {
		rest(true)
	}
	if d := rest(true); d < maxPause/2 || d > maxPause {
		t.Errorf("the pause is %v after many", d)
	}
	if d := rest(false); d > 0 {
		t.Errorf("the pause is %v after another was found", d)
	}
	for range 20 {
		rest(true)
	}
	now = now.Add(time.Minute)
	if d := rest(true); d > minPause {
		t.Errorf("the pause is %v after a minute", d)
	}
}
