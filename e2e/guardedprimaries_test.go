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

// throne is who has been primary.
type throne struct {
	mu    sync.Mutex // guards texts
	texts []string   // their sequencers, in the order in which they were granted
}

func (h *throne) crown(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.texts = append(h.texts, text)
}

// anyone returns the sequencer of the primary, or of one who was and does not
// know that he is not.
func (h *throne) anyone() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	back := 1
	switch n := rand.N(10); {
	case n == 0:
		back += rand.N(5)
	case n < 3:
		back++
	}
	return h.texts[max(len(h.texts)-back, 0)]
}

// reign makes one after the other the primary, for about a second each, until
// stop is closed. In turn they release the lock, are killed, and have the lock
// broken.
func (h *throne) reign(ctx context.Context, w *world, lock *client.Handle, operator *client.Client, stop <-chan struct{}) {
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
			p := w.ctl("-o", "json", "acquire", guardedLock, "--lease", "1s", "--lock-delay", "0s")
			p.waitFor("\n", 30*time.Second)
			var line struct{ Sequencer string }
			if err := json.Unmarshal([]byte(p.stdout.String()), &line); err != nil {
				w.t.Error(err)
				return
			}
			h.crown(line.Sequencer)
			rest(300 * time.Millisecond) // and nobody has the lock until the lease is over
			_ = p.cmd.Process.Kill()
			<-p.done
			continue
		}
		held, err := lock.Acquire(ctx, api.Exclusive)
		if err != nil {
			w.t.Error(err)
			return
		}
		h.crown(held.Sequencer().String())
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
