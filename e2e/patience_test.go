package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// slowMachine is what other tests, other packages and the disk may add to a step in make test: all of them share two processors,
// and a disk sometimes takes seconds for an fsync.
const slowMachine = time.Minute

// alone reports whether the tests run one by one, as those of make acceptance do: then they hold the cell to the times that are
// promised, and otherwise to what is promised besides.
func alone() bool { return *full || *rounds > ordinaryRounds }

// patience returns how long something may take that is promised within a limit.
func patience(limit time.Duration) time.Duration {
	if alone() {
		return limit
	}
	return limit + slowMachine
}

// longestElectionTimeout has a replica wait as long as it may until it thinks that the master is dead.
const longestElectionTimeout = "CHUBBYD_ELECTION_TIMEOUT=900ms"

// steadyMaster is the environment of a cell in which no other master may be elected: other tests may keep the processors busy for
// longer than the usual election timeout.
func steadyMaster() []string {
	if alone() {
		return nil
	}
	return []string{longestElectionTimeout}
}

// pace measures all the time how long a change takes: what a busy machine and its disk add to each entry of the log.
type pace struct {
	client *client.Client
	mu     sync.Mutex // guards what follows
	began  int64      // of the change that is under way
	done   []change
}

type change struct {
	ended int64
	took  time.Duration
}

// measurePace begins to measure. It ends with the test.
func (w *world) measurePace(t *testing.T) *pace {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &pace{client: w.clientFor(t, client.Config{NoCache: true}), began: machineNow()}
	h := w.handle(ctx, p.client, "/ls/local/pace")
	var measuring sync.WaitGroup
	t.Cleanup(func() {
		stop()
		measuring.Wait()
	})
	measuring.Go(func() {
		for tick := time.Tick(50 * time.Millisecond); ctx.Err() == nil; <-tick {
			p.mu.Lock()
			p.began = machineNow()
			p.mu.Unlock()
			_, err := h.SetContents(ctx, nil)
			if ctx.Err() == nil && err != nil {
				t.Error(err)
				return
			}
			p.mu.Lock()
			p.done = append(p.done, change{machineNow(), time.Duration(machineNow() - p.began)})
			p.mu.Unlock()
		}
	})
	return p
}

// slowest returns how long the slowest change took of those that were under way since an instant.
func (p *pace) slowest(since int64) (took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took = time.Duration(machineNow() - p.began)
	for _, c := range p.done {
		if c.ended >= since {
			took = max(took, c.took)
		}
	}
	return took
}

// epoch returns the epoch of the master that has answered last.
func (p *pace) epoch() api.Epoch { return p.client.Epoch() }
