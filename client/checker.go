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

func (k *CachingChecker) wasClosed(s sequencer.Sequencer) error {
	return &api.Error{Code: api.Unavailable, Op: "check sequencer", Path: s.Path.String(), Err: Closed,
		Message: "the CachingChecker was closed; close it after the last Guard that uses it"}
}
