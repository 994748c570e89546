package client

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

// CheckSequencer asks the cell whether a sequencer, in text, is still that of
// its lock. BadSequencer says that it is not, and why (Chubby §2.6).
func (c *Cell) CheckSequencer(ctx context.Context, text string) error {
	return c.ask(ctx, "check sequencer", "", func(ctx context.Context, t *target) error {
		return c.checkAt(ctx, t, text)
	})
}

// checkAt asks one master once.
func (c *Cell) checkAt(ctx context.Context, t *target, text string) error {
	reply, err := t.data.chubby.CheckSequencer(ctx, &chubbypb.CheckSequencerRequest{Cell: c.cfg.Cell, Sequencer: text})
	if err == nil && !reply.GetValid() {
		err = &api.Error{Code: api.BadSequencer, Message: reply.GetExplanation()}
	}
	return err
}

// Checker returns what a sequencer.Guard asks about sequencers: this cell, anew
// for each request. Client.CachingChecker asks less often.
func (c *Cell) Checker() sequencer.Checker { return cellChecker{c} }

type cellChecker struct{ cell *Cell }

// CheckSequencer asks the cell.
func (k cellChecker) CheckSequencer(ctx context.Context, s sequencer.Sequencer) error {
	return k.cell.CheckSequencer(ctx, s.String())
}

const (
	// MaxCheckAge is the longest that a good answer about a sequencer may serve: a
	// second too many is what the holder of a lost lock may go on for.
	MaxCheckAge = time.Second

	// mostChecked bounds the locks that a CachingChecker keeps answers of, and so its
	// handles and their goroutines: as many as a Guard tells apart.
	mostChecked = sequencer.DefaultMaxLocks

	// watchAgain is how long a lock whose events could not be asked for is left
	// alone: the reason is a right or a quota, and those change by hand.
	watchAgain = 10 * time.Second
)

// CachingChecker answers a sequencer.Guard's questions with the help of a live session
// (Chubby §2.4: "against the server's Chubby cache"). A good answer serves for
// at most maxAge from when the question was sent, by the session's clock; it
// falls sooner at any event of the lock (acquired, vacant, its node deleted),
// when another master is heard of, and when events were lost; and in jeopardy,
// or after the end of the session, nothing serves that was not asked then. A bad
// answer is never kept. (A lock that an operator takes away is vacant when its
// holder has let go; before that there is no event, and maxAge counts.)
//
// Questions about one sequencer that wait at the same time are answered by one
// call to the cell, which began after each of them was asked: the call that is
// under way answers those only who came before it was sent. (With a maxAge a
// good answer to it serves the others as one that was kept does.)
//
// To be told of events it opens the lock's node, to read: that right, and no
// other, the guarded server needs. Where that fails, and for ephemeral nodes,
// which a handle of its own would keep alive, maxAge alone bounds an answer; the
// log says so, once for each lock. It keeps 4096 locks and forgets the one that
// was asked about longest ago. Its session had better have Config.NoCache, or
// who writes the node waits for it.
//
// Its methods may be called from several goroutines. It has one goroutine, and a
// handle, for each lock that it watches, and one for each sequencer that is being
// asked about. Close it before its Client, or after.
type CachingChecker struct {
	client *Client
	maxAge time.Duration
	most   int             // locks, and goroutines that watch one
	base   context.Context //nolint:containedctx // of its goroutines: ended by Close
	stop   context.CancelFunc

	running sync.WaitGroup // Add only under mu, and not after closed

	mu       sync.Mutex // guards what follows
	closed   bool
	asking   map[sequencer.Sequencer]*questions // those with a goroutine
	locks    map[api.Path]*checkedLock
	recent   *list.List // of *checkedLock, the one asked about last in front
	watchers int        // goroutines that watch a lock; at most most
	stats    CachingCheckerStats
}

// CachingCheckerStats counts what a CachingChecker did since it was made.
type CachingCheckerStats struct {
	Asked   uint64 // calls to the cell, each with its retries
	Kept    uint64 // questions answered without one, by an answer that was kept
	Locks   int    // of which it keeps, or kept, an answer now
	Watched int    // of these, whose events it is told
}

// questions are the calls about one sequencer: the one under way, and the next.
type questions struct {
	now  *question // nil before the first
	next *question // not sent; nil if nobody waits for it
}

// question is one call to the cell.
type question struct {
	waiting int // who waits for it; mu
	cancel  context.CancelFunc
	sent    session.Instant // of the attempt that was answered, or is under way; mu
	epoch   api.Epoch       // that the session had heard of then; mu
	falls   uint64          // of the lock, then; mu
	done    chan struct{}   // closed when err is set
	err     error
}

// checkedLock is what is known of one lock. The mu of the CachingChecker guards it.
type checkedLock struct {
	path  api.Path
	place *list.Element // in recent
	good  sequencer.Sequencer
	sent  session.Instant // the question to which good is the answer
	epoch api.Epoch       // that the session had heard of when it was sent
	falls uint64          // how often what was known has fallen

	unwatch context.CancelFunc // ends the goroutine that watches it; nil if none does
	open    bool               // its events are told
	again   session.Instant    // not to be tried before
	said    bool               // that it cannot be watched
}

// CachingChecker returns what a sequencer.Guard asks about sequencers: this session,
// which keeps good answers for at most maxAge, from 0 (every request asks) to
// MaxCheckAge; else it is InvalidArgument. The session must be one of the cell
// whose locks are guarded. It is to be closed.
func (c *Client) CachingChecker(maxAge time.Duration) (*CachingChecker, error) {
	if maxAge < 0 || maxAge > MaxCheckAge {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "make a checker", Path: c.cell.root(),
			Message: fmt.Sprintf("maxAge is %v; want 0 to %v: for so long the holder of a lost lock may still be let in", maxAge, MaxCheckAge)}
	}
	k := &CachingChecker{
		client: c, maxAge: maxAge, most: mostChecked, asking: map[sequencer.Sequencer]*questions{}, locks: map[api.Path]*checkedLock{}, recent: list.New(),
	}
	k.base, k.stop = context.WithCancel(context.WithoutCancel(c.session.ended))
	return k, nil
}

// Close ends what it watches and returns when none of its goroutines runs any
// more, which takes 5 s at most, if the cell cannot be reached to close its
// handles. Those who wait for an answer, and who ask later, get Unavailable.
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
		if l.open {
			stats.Watched++
		}
	}
	return stats
}

// CheckSequencer returns nil if the sequencer's lock is held in its generation,
// or was at most maxAge ago and nothing was heard since. BadSequencer says that
// it is not; Unavailable, Cancelled and other codes that the cell could not be
// asked, or not in time.
func (k *CachingChecker) CheckSequencer(ctx context.Context, s sequencer.Sequencer) error {
	// To wait once for a call that is under way is worth it: its answer may be kept.
	for late := k.maxAge > 0; ; late = false {
		q, definite, err := k.find(s, late)
		if q == nil {
			return err
		}
		select {
		case <-q.done:
			if definite {
				return q.err
			}
		case <-ctx.Done():
			k.leave(q)
			code := api.Unavailable
			if errors.Is(ctx.Err(), context.Canceled) {
				code = api.Cancelled
			}
			return &api.Error{Code: code, Op: "check sequencer", Path: s.Path.String(), Err: contextError(ctx),
				Message: "the cell did not say in time whether the lock is still held; " + k.client.session.describe()}
		}
	}
}

// find returns nothing if an answer that was kept will do, or else the call to
// wait for. definite says that it is not sent before this, so that its answer
// counts whatever it is; late allows one that is under way, whose answer counts
// if it is kept.
func (k *CachingChecker) find(s sequencer.Sequencer, late bool) (q *question, definite bool, err error) {
	now, epoch, safe := k.client.session.readClock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, false, k.wasClosed(s)
	}
	if safe && k.stands(s, now, epoch) {
		k.stats.Kept++
		return nil, false, nil
	}
	all := k.asking[s]
	if all == nil {
		all = &questions{next: newQuestion()}
		k.asking[s] = all
		k.running.Go(func() { k.ask(s, all) })
	}
	if late && all.now != nil && all.now.waiting > 0 && now.Sub(all.now.sent) < k.maxAge {
		all.now.waiting++
		return all.now, false, nil
	}
	if all.next == nil {
		all.next = newQuestion()
	}
	all.next.waiting++
	return all.next, true, nil
}

func newQuestion() *question { return &question{done: make(chan struct{})} }

func (k *CachingChecker) wasClosed(s sequencer.Sequencer) error {
	return &api.Error{Code: api.Unavailable, Op: "check sequencer", Path: s.Path.String(), Err: Closed,
		Message: "the CachingChecker was closed; close it after the last Guard that uses it"}
}

// stands reports whether an answer that was kept says that s is good; mu is held.
func (k *CachingChecker) stands(s sequencer.Sequencer, now session.Instant, epoch api.Epoch) bool {
	l := k.locks[s.Path]
	if l == nil || l.good != s || l.epoch != epoch || now.Sub(l.sent) >= k.maxAge {
		return false
	}
	k.recent.MoveToFront(l.place)
	return true
}

// leave ends the call that nobody waits for any more.
func (k *CachingChecker) leave(q *question) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if q.waiting--; q.waiting == 0 && q.cancel != nil {
		q.cancel()
	}
}

// ask makes one call after the other about a sequencer, while somebody waits for
// one.
func (k *CachingChecker) ask(s sequencer.Sequencer, all *questions) {
	text := s.String()
	for {
		ctx, q := k.begin(s, all)
		if q == nil {
			return
		}
		k.finish(s, all, q, k.client.cell.ask(ctx, "check sequencer", s.Path.String(), func(ctx context.Context, t *target) error {
			k.stamp(s, q)
			return k.client.cell.checkAt(ctx, t, text)
		}))
	}
}

// begin takes the next call, nil if nobody waits for one.
func (k *CachingChecker) begin(s sequencer.Sequencer, all *questions) (context.Context, *question) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := all.next
	all.next = nil
	if q == nil || q.waiting == 0 {
		delete(k.asking, s)
		return nil, nil
	}
	ctx, cancel := context.WithCancel(k.base)
	q.cancel, all.now = cancel, q
	q.sent = k.client.session.clock()
	k.stats.Asked++
	return ctx, q
}

// stamp notes when an attempt is sent, and what its answer will be compared with.
func (k *CachingChecker) stamp(s sequencer.Sequencer, q *question) {
	now, epoch, _ := k.client.session.readClock()
	k.mu.Lock()
	defer k.mu.Unlock()
	q.sent, q.epoch, q.falls = now, epoch, 0
	if l := k.locks[s.Path]; l != nil {
		q.falls = l.falls
	}
}

// finish hands out the answer to a call.
func (k *CachingChecker) finish(s sequencer.Sequencer, all *questions, q *question, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && k.closed {
		err = k.wasClosed(s)
	}
	q.cancel()
	all.now, q.err = nil, err
	switch l := k.locks[s.Path]; {
	case err == nil && k.maxAge > 0:
		k.keep(s, q)
	case errors.Is(err, api.BadSequencer) && l != nil && l.good == s:
		l.fall()
	}
	close(q.done)
}

// keep keeps a good answer, unless what was known of the lock has fallen since
// the question was sent; mu is held.
func (k *CachingChecker) keep(s sequencer.Sequencer, q *question) {
	l := k.locks[s.Path]
	if l == nil {
		if len(k.locks) >= k.most {
			k.forget(k.recent.Back().Value.(*checkedLock))
		}
		l = &checkedLock{path: s.Path}
		l.place = k.recent.PushFront(l)
		k.locks[s.Path] = l
	}
	k.recent.MoveToFront(l.place)
	if l.falls == q.falls && l.sent <= q.sent {
		l.good, l.sent, l.epoch = s, q.sent, q.epoch
	}
	k.attend(l)
}

// forget makes room for another lock; mu is held.
func (k *CachingChecker) forget(l *checkedLock) {
	k.recent.Remove(l.place)
	delete(k.locks, l.path)
	if l.unwatch != nil {
		l.unwatch()
	}
}

// fall makes the next question about the lock be asked; mu is held.
func (l *checkedLock) fall() {
	l.good = sequencer.Sequencer{}
	l.falls++
}

// attend sees to it that the lock is watched; mu is held. Only a good answer
// leads here: for an invented sequencer nothing is opened.
func (k *CachingChecker) attend(l *checkedLock) {
	b := k.client.session
	if l.unwatch != nil || k.closed || k.watchers == k.most || b.ended.Err() != nil || b.clock() < l.again {
		return
	}
	ctx, cancel := context.WithCancel(k.base)
	l.unwatch = cancel
	k.watchers++
	k.running.Go(func() {
		defer cancel()
		err := k.watch(ctx, l)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.watchers--
		l.unwatch, l.open = nil, false
		l.fall()
		if err == nil || ctx.Err() != nil || b.ended.Err() != nil {
			return // or it was watched, and the node is gone
		}
		l.again = b.clock().Add(watchAgain)
		if !l.said {
			l.said = true
			b.notifier.log(func() {
				b.logger.Warn("a lock cannot be watched, so that good answers about its sequencers serve for their whole time, although it is lost meanwhile",
					"path", l.path, "session", b.id, "time", k.maxAge, "error", err)
			})
		}
	})
}

// watch lets what is known of a lock fall at each of its events, until ctx, the
// session or the node ends. An error says that it never was told of any.
func (k *CachingChecker) watch(ctx context.Context, l *checkedLock) error {
	h, err := k.client.Open(ctx, l.path.String(), OpenOptions{
		Read: true, Events: []api.EventKind{api.EventLockAcquired, api.EventLockVacant},
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		_ = h.Close(ctx) // what cannot be closed goes with the session
	}()
	stat, err := h.Stat(ctx)
	if err != nil {
		return err
	}
	if stat.Ephemeral {
		return api.Errorf(api.InvalidArgument, "its node is ephemeral, and the handle to watch it by would keep it alive; lock a permanent file")
	}
	k.mu.Lock()
	l.open = true
	l.fall() // what was told before this handle was open may have come to an end without an event
	k.mu.Unlock()
	for _, err := range h.Events(ctx) {
		k.mu.Lock()
		l.fall()
		k.mu.Unlock()
		if err != nil {
			break // the handle, the session or ctx is over
		}
	}
	return nil
}
