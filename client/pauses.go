package client

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	hedgeDelay = 30 * time.Millisecond // without an answer by then, the next replica is asked too

	minPause = 20 * time.Millisecond  // the first pause between two attempts
	maxPause = 500 * time.Millisecond // the longest
)

// retryPause is the pause between two attempts, each about half as long again as the one before: if they
// doubled, a call that waits for an election would on average end too late by half of it. Jitter spreads the
// clients that lost their master together (Chubby §2.9).
type retryPause struct{ last time.Duration }

func (p *retryPause) next() time.Duration {
	p.last = min(max(p.last+p.last/2, minPause), maxPause)
	return p.last/2 + rand.N(p.last/2+1)
}

func (p *retryPause) wait(ctx context.Context) { sleep(ctx, p.next()) }

// sleep waits for that time, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// wakeUp wakes the goroutine that reads a channel of capacity 1.
func wakeUp(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
