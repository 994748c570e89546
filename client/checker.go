package client

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

const (
	// MaxCheckAge is the greatest maxAge of a CachingChecker: for at most so long may a guard accept the
	// holder of a lost lock.
	MaxCheckAge = time.Second

	// maxCheckedLocks limits the locks with kept answers, and so the handles and goroutines: as many as a
	// Guard separates.
	maxCheckedLocks = sequencer.DefaultMaxLocks

	// watchRetryInterval is the pause before another attempt to watch a lock, as people change rights and
	// quotas.
	watchRetryInterval = 10 * time.Second
)

// CachingChecker answers the questions of a sequencer.Guard with the help of a live session (Chubby §2.4:
// "against the server's Chubby cache"). It keeps a good answer for at most maxAge after the question was
// sent, by the session's clock. It drops the answer at any event of the lock (acquired, vacant, its node
// deleted), when the epoch changes, and when events were lost. In jeopardy, and after the session, it uses no
// kept answer. It never keeps a bad answer. (After an operator takes a lock away, no event comes before its
// holder has released it; until then maxAge counts.)
//
// One call to the cell answers simultaneous questions about a sequencer, if it was sent after them. (With a
// maxAge above 0, its good answer serves later ones too.)
//
// To get the events, it opens the lock's node to read, the only right that the guarded server needs. Where
// that fails, and for ephemeral nodes, which its handle would keep alive, maxAge alone limits an answer; the
// log says so once for each lock. It keeps answers for 4096 locks, and forgets the least recently used. The
// session should have Config.NoCache; otherwise writers of the node wait until its cache has dropped the
// node.
//
// Its methods may be called from several goroutines. It has a goroutine and a handle for each watched lock,
// and one or two for each sequencer with a pending question. Close it before its Client or after.
type CachingChecker struct {
	client   *Client
	maxAge   time.Duration
	maxLocks int             // locks, and goroutines that watch one
	life     context.Context //nolint:containedctx // of its goroutines: ended by Close
	stop     context.CancelFunc

	running sync.WaitGroup // its goroutines; Add only under mu, and not after closed

	// mu guards what follows, the checks and the locks. notifier.mu may be taken under it.
	mu       sync.Mutex
	closed   bool
	newest   map[sequencer.Sequencer]*check // not answered yet; each has a goroutine, and that before it
	locks    map[api.Path]*checkedLock
	recent   *list.List // of *checkedLock, most recent first
	watchers int        // goroutines that watch a lock; at most maxLocks
	stats    CachingCheckerStats
}

// CachingCheckerStats counts a CachingChecker's work.
type CachingCheckerStats struct {
	Asked   uint64 // calls to the cell, retries included
	Kept    uint64 // questions answered by a kept answer
	Locks   int    // with a kept answer, or a trace of one
	Watched int    // of these, with events
}

// CachingChecker returns a checker for a sequencer.Guard that keeps good answers for at most maxAge, from 0
// (it asks the cell every time) to MaxCheckAge; otherwise InvalidArgument. The session must be with the cell
// of the guarded locks. The caller closes the checker.
func (c *Client) CachingChecker(maxAge time.Duration) (*CachingChecker, error) {
	if maxAge < 0 || maxAge > MaxCheckAge {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "make a checker", Path: rootPath(c.cell.cfg),
			Message: fmt.Sprintf("maxAge is %v; want 0 to %v: for so long the holder of a lost lock may still be let in", maxAge, MaxCheckAge)}
	}
	k := &CachingChecker{
		client:   c,
		maxAge:   maxAge,
		maxLocks: maxCheckedLocks,
		newest:   map[sequencer.Sequencer]*check{},
		locks:    map[api.Path]*checkedLock{},
		recent:   list.New(),
	}
	k.life, k.stop = context.WithCancel(context.WithoutCancel(c.session.ended))
	return k, nil
}

// Close ends the goroutines and returns, after at most 5 s if the cell is unreachable to close the handles.
// Pending and later questions fail with Unavailable.
func (k *CachingChecker) Close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.stop()
	k.running.Wait()
}

// Stats returns the counts so far.
func (k *CachingChecker) Stats() CachingCheckerStats {
	k.mu.Lock()
	defer k.mu.Unlock()
	stats := k.stats
	stats.Locks = len(k.locks)
	for _, l := range k.locks {
		if l.watched {
			stats.Watched++
		}
	}
	return stats
}

// CheckSequencer returns nil if the sequencer's lock is held in its generation, or was at most maxAge ago
// without an event since. BadSequencer says that it is not. Other codes, such as Unavailable and Cancelled,
// say that the cell did not answer, or not in time.
func (k *CachingChecker) CheckSequencer(ctx context.Context, s sequencer.Sequencer) error {
	// Waiting for the pending call is worthwhile once: its answer may be kept.
	for late := k.maxAge > 0; ; late = false {
		c, definite, err := k.findAnswer(s, late)
		if c == nil {
			return err
		}
		select {
		case <-c.done:
			if definite {
				return c.err
			}
		case <-ctx.Done():
			k.leaveCheck(c)
			code := api.Unavailable
			if errors.Is(ctx.Err(), context.Canceled) {
				code = api.Cancelled
			}
			return &api.Error{Code: code, Op: "check sequencer", Path: s.Path.String(), Err: contextError(ctx),
				Message: "the cell did not say in time whether the lock is still held; " + k.client.session.describe()}
		}
	}
}

func (k *CachingChecker) closedError(s sequencer.Sequencer) error {
	return &api.Error{Code: api.Unavailable, Op: "check sequencer", Path: s.Path.String(), Err: Closed,
		Message: "the CachingChecker was closed; close it after the last Guard that uses it"}
}

// check is one call to the cell. The mu of the CachingChecker guards it.
type check struct {
	before        *check // about the same sequencer, and not answered yet: this one is sent after it; else nil
	waiters       int
	cancel        context.CancelFunc // nil before the call begins
	sent          session.Instant    // when the newest attempt was sent
	epoch         api.Epoch          // of the session at that time
	invalidations uint64             // of the lock at that time
	done          chan struct{}      // closed when err is set
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
	c = k.newest[s]
	pending := c
	if c != nil && c.cancel == nil {
		pending = c.before
	}
	if late && pending != nil && pending.waiters > 0 && now.Sub(pending.sent) < k.maxAge {
		pending.waiters++
		return pending, false, nil
	}
	if c == pending { // there is none, or it was sent
		c = &check{before: pending, done: make(chan struct{})}
		k.newest[s] = c
		k.running.Go(func() { k.run(s, c) })
	}
	c.waiters++
	return c, true, nil
}

// leaveCheck ends the wait of one caller. The last cancels the check.
func (k *CachingChecker) leaveCheck(c *check) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.waiters--; c.waiters == 0 && c.cancel != nil {
		c.cancel()
	}
}

// run makes the call of a check, after that before it, if anybody waits for it.
func (k *CachingChecker) run(s sequencer.Sequencer, c *check) {
	if before := c.before; before != nil { // constant until then
		<-before.done
	}
	ctx, cancel := context.WithCancel(k.life)
	defer cancel()
	k.mu.Lock()
	waiters := c.waiters
	c.before, c.cancel, c.sent = nil, cancel, k.client.session.clock()
	if waiters == 0 {
		k.endCheck(s, c)
	} else {
		k.stats.Asked++
	}
	k.mu.Unlock()
	if waiters == 0 {
		return
	}
	text := s.String()
	k.finishCheck(s, c, k.client.cell.ask(ctx, "check sequencer", s.Path.String(), func(ctx context.Context, t *target) error {
		k.noteSent(s, c)
		return checkSequencerAt(ctx, k.client.cell, t, text)
	}))
}

// endCheck ends a check; mu is held.
func (k *CachingChecker) endCheck(s sequencer.Sequencer, c *check) {
	close(c.done)
	if k.newest[s] == c {
		delete(k.newest, s)
	}
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

func (k *CachingChecker) finishCheck(s sequencer.Sequencer, c *check, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && k.closed {
		err = k.closedError(s)
	}
	c.err = err
	switch l := k.locks[s.Path]; {
	case err == nil && k.maxAge > 0:
		k.keepAnswer(s, c)
	case errors.Is(err, api.BadSequencer) && l != nil && l.good == s:
		l.invalidate()
	}
	k.endCheck(s, c)
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
				s.cfg.Logger.Warn("a lock cannot be watched, so that good answers about its sequencers serve for their whole time, "+
					"although it is lost meanwhile",
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
