package client

import (
	"context"
	"errors"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

type inflightChecks struct {
	current *check // nil before the first
	next    *check // not sent yet; nil without waiters
}

// check is one call to the cell. The mu of the CachingChecker guards it.
type check struct {
	waiters       int
	cancel        context.CancelFunc
	sent          session.Instant // when the newest attempt was sent
	epoch         api.Epoch       // of the session at that time
	invalidations uint64          // of the lock at that time
	done          chan struct{}   // closed when err is set
	err           error
}

// findAnswer returns no check if a kept answer will do, and else the check to wait for. definite: this check
// was unsent, so any answer counts. With late, the check may be the pending one, whose answer counts if it is
// kept.
func (k *CachingChecker) findAnswer(s sequencer.Sequencer, late bool) (c *check, definite bool, err error) {
	now, epoch, safe := k.client.session.readClock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, false, k.closedError(s)
	}
	if safe && k.isKeptGood(s, now, epoch) {
		k.stats.Kept++
		return nil, false, nil
	}
	checks := k.inflight[s]
	if checks == nil {
		checks = &inflightChecks{next: newCheck()}
		k.inflight[s] = checks
		k.running.Go(func() { k.runChecks(s, checks) })
	}
	if late && checks.current != nil && checks.current.waiters > 0 && now.Sub(checks.current.sent) < k.maxAge {
		checks.current.waiters++
		return checks.current, false, nil
	}
	if checks.next == nil {
		checks.next = newCheck()
	}
	checks.next.waiters++
	return checks.next, true, nil
}

func newCheck() *check { return &check{done: make(chan struct{})} }

// leaveCheck ends the wait of one caller. The last cancels the check.
func (k *CachingChecker) leaveCheck(c *check) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.waiters--; c.waiters == 0 && c.cancel != nil {
		c.cancel()
	}
}

func (k *CachingChecker) runChecks(s sequencer.Sequencer, checks *inflightChecks) {
	text := s.String()
	for {
		ctx, c := k.startNextCheck(s, checks)
		if c == nil {
			return
		}
		k.finishCheck(s, checks, c, k.client.cell.ask(ctx, "check sequencer", s.Path.String(), func(ctx context.Context, t *target) error {
			k.noteSent(s, c)
			return checkSequencerAt(ctx, k.client.cell, t, text)
		}))
	}
}

func (k *CachingChecker) startNextCheck(s sequencer.Sequencer, checks *inflightChecks) (context.Context, *check) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := checks.next
	checks.next = nil
	if c == nil || c.waiters == 0 {
		delete(k.inflight, s)
		return nil, nil
	}
	ctx, cancel := context.WithCancel(k.life)
	c.cancel, checks.current = cancel, c
	c.sent = k.client.session.clock()
	k.stats.Asked++
	return ctx, c
}

func (k *CachingChecker) noteSent(s sequencer.Sequencer, c *check) {
	now, epoch, _ := k.client.session.readClock()
	k.mu.Lock()
	defer k.mu.Unlock()
	c.sent, c.epoch, c.invalidations = now, epoch, 0
	if l := k.locks[s.Path]; l != nil {
		c.invalidations = l.invalidations
	}
}

func (k *CachingChecker) finishCheck(s sequencer.Sequencer, checks *inflightChecks, c *check, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && k.closed {
		err = k.closedError(s)
	}
	c.cancel()
	checks.current, c.err = nil, err
	switch l := k.locks[s.Path]; {
	case err == nil && k.maxAge > 0:
		k.keepAnswer(s, c)
	case errors.Is(err, api.BadSequencer) && l != nil && l.good == s:
		l.invalidate()
	}
	close(c.done)
}
