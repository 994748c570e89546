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

// CheckSequencer asks the cell whether a sequencer, given as text, is still that of
// its lock. BadSequencer says that it is not, and why (Chubby §2.6).
func (c *Cell) CheckSequencer(ctx context.Context, text string) error {
	return c.ask(ctx, "check sequencer", "", func(ctx context.Context, t *target) error {
		return checkSequencerAt(ctx, c, t, text)
	})
}

// checkSequencerAt asks one master once.
func checkSequencerAt(ctx context.Context, c *Cell, t *target, text string) error {
	reply, err := t.data.chubby.CheckSequencer(ctx, &chubbypb.CheckSequencerRequest{Cell: c.cfg.Cell, Sequencer: text})
	if err == nil && !reply.GetValid() {
		err = &api.Error{Code: api.BadSequencer, Message: reply.GetExplanation()}
	}
	return err
}

// Checker returns a checker for a sequencer.Guard that asks the cell for each
// request. That of Client.CachingChecker asks less often.
func (c *Cell) Checker() sequencer.Checker { return uncachedChecker{c} }

type uncachedChecker struct{ cell *Cell }

// CheckSequencer asks the cell.
func (k uncachedChecker) CheckSequencer(ctx context.Context, s sequencer.Sequencer) error {
	return k.cell.CheckSequencer(ctx, s.String())
}

const (
	// MaxCheckAge is the greatest maxAge of a CachingChecker: for at most so long may
	// the holder of a lost lock still be let in.
	MaxCheckAge = time.Second

	// maxCheckedLocks bounds the locks of which a CachingChecker keeps answers, and so
	// its handles and its goroutines: as many as a Guard keeps apart.
	maxCheckedLocks = sequencer.DefaultMaxLocks

	// watchRetryInterval is when to try again to watch a lock that could not be watched:
	// the reason is a right or a quota, and people change those.
	watchRetryInterval = 10 * time.Second
)

// CachingChecker answers the questions of a sequencer.Guard with the help of a live
// session (Chubby §2.4: "against the server's Chubby cache"). A good answer is kept
// for at most maxAge from the moment when the question was sent, by the session's
// clock. It is dropped earlier at any event of the lock (acquired, vacant, its node
// deleted), when the epoch changes, and when events were lost. In jeopardy, and after
// the end of the session, no answer from before serves. A bad answer is never kept.
// (When an operator takes a lock away, there is no event before its holder has
// released it; until then maxAge counts.)
//
// Questions about one sequencer that wait at the same time are answered by one call
// to the cell, which began after each of them was asked; the call in flight answers
// only those that came before it was sent. (With a maxAge above 0, a good answer to
// the call in flight serves the later questions as a kept answer does.)
//
// To get the events, it opens the lock's node to read; the guarded server needs that
// right and no other. Where that fails, and for ephemeral nodes, which its handle
// would keep alive, maxAge alone bounds an answer; the log says so once for each
// lock. It keeps answers for 4096 locks, and forgets the one that was asked about
// longest ago. The session should have Config.NoCache; otherwise writers of the node
// wait until this session has dropped the node from its cache.
//
// Its methods may be called from several goroutines. It has a goroutine and a handle
// for each lock that it watches, and a goroutine for each sequencer about which it is
// asking. Close it before its Client or after.
type CachingChecker struct {
	client   *Client
	maxAge   time.Duration
	maxLocks int             // locks, and goroutines that watch one
	life     context.Context //nolint:containedctx // of its goroutines: ended by Close
	stop     context.CancelFunc

	running sync.WaitGroup // its goroutines; Add only under mu, and not after closed

	// mu guards what follows, the checks and the locks. notifier.mu may be taken
	// while it is held.
	mu       sync.Mutex
	closed   bool
	inflight map[sequencer.Sequencer]*inflightChecks // each has a goroutine
	locks    map[api.Path]*checkedLock
	recent   *list.List // of *checkedLock, the most recently asked about first
	watchers int        // goroutines that watch a lock; at most maxLocks
	stats    CachingCheckerStats
}

// CachingCheckerStats counts what a CachingChecker has done.
type CachingCheckerStats struct {
	Asked   uint64 // calls to the cell, each with its retries
	Kept    uint64 // questions that a kept answer has answered
	Locks   int    // of which it keeps an answer, or a trace of one
	Watched int    // of these, whose events it gets
}

// CachingChecker returns a checker for a sequencer.Guard that keeps good answers for
// at most maxAge, from 0 (the cell is asked for every request) to MaxCheckAge; else
// it fails with InvalidArgument. The session must be with the cell whose locks are
// guarded. The caller closes the checker.
func (c *Client) CachingChecker(maxAge time.Duration) (*CachingChecker, error) {
	if maxAge < 0 || maxAge > MaxCheckAge {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "make a checker", Path: rootPath(c.cell.cfg),
			Message: fmt.Sprintf("maxAge is %v; want 0 to %v: for so long the holder of a lost lock may still be let in", maxAge, MaxCheckAge)}
	}
	k := &CachingChecker{
		client:   c,
		maxAge:   maxAge,
		maxLocks: maxCheckedLocks,
		inflight: map[sequencer.Sequencer]*inflightChecks{},
		locks:    map[api.Path]*checkedLock{},
		recent:   list.New(),
	}
	k.life, k.stop = context.WithCancel(context.WithoutCancel(c.session.ended))
	return k, nil
}

// Close ends its goroutines and returns when none runs any more, after 5 s at most if
// the cell cannot be reached to close the handles. Questions that wait, and later
// ones, fail with Unavailable.
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

// CheckSequencer returns nil if the sequencer's lock is held in its generation, or
// was at most maxAge ago and nothing was heard since. BadSequencer says that it is
// not. Unavailable, Cancelled and other codes say that the cell could not be asked,
// or not in time.
func (k *CachingChecker) CheckSequencer(ctx context.Context, s sequencer.Sequencer) error {
	// It is worth waiting for the call in flight once: its answer may be kept.
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

// closedError is the error of questions after Close.
func (k *CachingChecker) closedError(s sequencer.Sequencer) error {
	return &api.Error{Code: api.Unavailable, Op: "check sequencer", Path: s.Path.String(), Err: Closed,
		Message: "the CachingChecker was closed; close it after the last Guard that uses it"}
}
