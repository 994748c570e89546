package client

import (
	"container/list"
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

// checkedLock is a CachingChecker's knowledge of one lock. The mu of the CachingChecker guards it.
type checkedLock struct {
	path          api.Path
	element       *list.Element       // in recent
	good          sequencer.Sequencer // the kept answer, or zero
	sent          session.Instant     // when the question of good was sent
	epoch         api.Epoch           // of the session at that time
	invalidations uint64              // counts dropped answers

	stopWatch    context.CancelFunc // ends the watching goroutine, or nil
	watched      bool               // its events arrive
	retryWatchAt session.Instant    // earliest next attempt to watch
	warned       bool
}

// isKeptGood reports whether a kept answer says that s is good; mu is held.
func (k *CachingChecker) isKeptGood(s sequencer.Sequencer, now session.Instant, epoch api.Epoch) bool {
	l := k.locks[s.Path]
	if l == nil || l.good != s || l.epoch != epoch || now.Sub(l.sent) >= k.maxAge {
		return false
	}
	k.recent.MoveToFront(l.element)
	return true
}

// keepAnswer keeps a good answer, unless the lock was invalidated after the question; mu is held.
func (k *CachingChecker) keepAnswer(s sequencer.Sequencer, c *check) {
	l := k.locks[s.Path]
	if l == nil {
		if len(k.locks) >= k.maxLocks {
			k.forgetLock(k.recent.Back().Value.(*checkedLock))
		}
		l = &checkedLock{path: s.Path}
		l.element = k.recent.PushFront(l)
		k.locks[s.Path] = l
	}
	k.recent.MoveToFront(l.element)
	if l.invalidations == c.invalidations && l.sent <= c.sent {
		l.good, l.sent, l.epoch = s, c.sent, c.epoch
	}
	k.ensureWatched(l)
}

// forgetLock makes room for another lock; mu is held.
func (k *CachingChecker) forgetLock(l *checkedLock) {
	k.recent.Remove(l.element)
	delete(k.locks, l.path)
	if l.stopWatch != nil {
		l.stopWatch()
	}
}

// invalidate drops the kept answer; mu is held.
func (l *checkedLock) invalidate() {
	l.good = sequencer.Sequencer{}
	l.invalidations++
}

// ensureWatched watches the lock; mu is held. It is called for good answers only, so an invented sequencer
// opens nothing.
func (k *CachingChecker) ensureWatched(l *checkedLock) {
	s := k.client.session
	if l.stopWatch != nil || k.closed || k.watchers == k.maxLocks || s.ended.Err() != nil || s.clock() < l.retryWatchAt {
		return
	}
	ctx, cancel := context.WithCancel(k.life)
	l.stopWatch = cancel
	k.watchers++
	k.running.Go(func() {
		defer cancel()
		err := k.watchLock(ctx, l)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.watchers--
		l.stopWatch, l.watched = nil, false
		l.invalidate()
		if err == nil || ctx.Err() != nil || s.ended.Err() != nil {
			return // nil: watched until the node was deleted
		}
		l.retryWatchAt = s.clock().Add(watchRetryInterval)
		if !l.warned {
			l.warned = true
			s.notifier.enqueueLog(func() {
				s.logger.Warn("a lock cannot be watched, so that good answers about its sequencers serve for their whole time, although it is lost meanwhile",
					"path", l.path, "session", s.id, "max_age", k.maxAge, "error", err)
			})
		}
	})
}

// watchLock invalidates the lock at each of its events, until ctx, the session or the node ends. An error
// says that it never watched.
func (k *CachingChecker) watchLock(ctx context.Context, l *checkedLock) error {
	h, err := k.client.Open(ctx, l.path.String(), OpenOptions{
		Read: true, Events: []api.EventKind{api.EventLockAcquired, api.EventLockVacant},
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxCloseTime)
		defer cancel()
		_ = h.Close(ctx)
	}()
	stat, err := h.Stat(ctx)
	if err != nil {
		return err
	}
	if stat.Ephemeral {
		return api.Errorf(api.InvalidArgument, "its node is ephemeral, and the handle to watch it by would keep it alive; lock a permanent file")
	}
	k.mu.Lock()
	l.watched = true
	l.invalidate() // the answer may have become wrong before this handle was open, without an event
	k.mu.Unlock()
	for _, err := range h.Events(ctx) {
		k.mu.Lock()
		l.invalidate()
		k.mu.Unlock()
		if err != nil {
			break // the handle, the session or ctx has ended
		}
	}
	return nil
}
