package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// primaries are those that there have been.
type primaries struct {
	mu    sync.Mutex // guards texts
	texts []string   // their sequencers, in the order in which they were granted
}

func (p *primaries) add(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.texts = append(p.texts, text)
}

// anySequencer returns the sequencer of the primary, or of an earlier one that does not
// know that it has been replaced; "" if there was none yet.
func (p *primaries) anySequencer() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.texts) == 0 {
		return ""
	}
	back := 1
	switch n := rand.N(10); {
	case n == 0:
		back += rand.N(5)
	case n < 3:
		back++
	}
	return p.texts[max(len(p.texts)-back, 0)]
}

// replace makes one process after the other the primary, for about a second each, until
// stop is closed. In turn they release the lock, are killed, and have the lock broken.
func (p *primaries) replace(ctx context.Context, w *world, lock *client.Handle, operator *client.Client, stop <-chan struct{}) {
	rest := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-stop:
		}
	}
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		if i%3 == 1 {
			acquire := w.ctl("-o", "json", "acquire", guardedLock, "--lease", "1s", "--lock-delay", "0s")
			acquire.waitFor("\n", 30*time.Second)
			var line struct{ Sequencer string }
			if err := json.Unmarshal([]byte(acquire.stdout.String()), &line); err != nil {
				w.t.Error(err)
				return
			}
			p.add(line.Sequencer)
			rest(300 * time.Millisecond) // nobody has the lock until the lease has ended
			_ = acquire.cmd.Process.Kill()
			<-acquire.done
			continue
		}
		held, err := lock.Acquire(ctx, api.Exclusive)
		if err != nil {
			w.t.Error(err)
			return
		}
		p.add(held.Sequencer().String())
		rest(time.Second)
		if i%3 == 2 {
			if err := operator.BreakLock(ctx, guardedLock, "a test", true); err != nil {
				w.t.Error(err)
			}
		}
		if err := held.Release(ctx); err != nil && !errors.Is(err, api.LockLost) {
			w.t.Error(err)
		}
	}
}
