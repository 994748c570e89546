package master

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
)

// expect records the callers that an entry answers, before they are, if it took long.
func (p *proposer) expect(batch []*proposal, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away, p.missing = nil, 0
	if took < gatherAbove {
		return
	}
	p.away = make(map[api.SessionID]int, len(batch))
	for _, one := range batch {
		if !one.own && one.by != 0 {
			p.away[one.by]++
			p.missing++
		}
	}
}

// gather waits a moment after an entry that took long, for the callers that it answered: most come back at once with
// their next command, and share an entry with those that came meanwhile. Else 64 callers become two groups, and each
// waits while an entry of the other is on its way. It returns when all of them have come back, or as many commands wait
// as one entry has; when none has come back for an eighth of the time that the entry took; and after three quarters of
// it at the latest (docs/adr/0052). The clock counts a suspended machine's sleep, so an entry takes gatherMost at most.
func (p *proposer) gather(ctx context.Context, took time.Duration) {
	if took < gatherAbove {
		return
	}
	took = min(took, gatherMost)
	end, idle := time.After(took*3/4), time.NewTimer(took/8)
	defer idle.Stop()
	for missing, full := p.gathered(); missing > 0 && !full; {
		select {
		case <-p.wake:
		case <-idle.C:
			return
		case <-end:
			return
		case <-ctx.Done():
			return
		}
		before := missing
		if missing, full = p.gathered(); missing < before {
			idle.Reset(took / 8)
		}
	}
}

// gathered returns how many callers are missing, and whether as many commands wait as one entry has.
func (p *proposer) gathered() (missing int, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missing, len(p.pending) >= api.MaxBatch || p.bytes >= p.limits.batch
}

const (
	// gatherAbove is how long an entry has to take before gather waits: on busy processors entries of near replicas take
	// some milliseconds, and callers no less.
	gatherAbove = 8 * time.Millisecond
	gatherMost  = 400 * time.Millisecond
)
