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

// CheckSequencer asks the cell whether a sequencer, given as text, is still its lock's. BadSequencer says
// that it is not, and why (Chubby §2.6).
func (c *Cell) CheckSequencer(ctx context.Context, text string) error {
	return c.ask(ctx, "check sequencer", "", func(ctx context.Context, t *target) error {
		return checkSequencerAt(ctx, c, t, text)
	})
}

func checkSequencerAt(ctx context.Context, c *Cell, t *target, text string) error {
	reply, err := t.data.chubby.CheckSequencer(ctx, &chubbypb.CheckSequencerRequest{Cell: c.cfg.Cell, Sequencer: text})
	if err == nil && !reply.GetValid() {
		err = &api.Error{Code: api.BadSequencer, Message: reply.GetExplanation()}
	}
	return err
}

// Checker returns a checker for a sequencer.Guard that asks the cell for each request.
// Client.CachingChecker's asks less often.
func (c *Cell) Checker() sequencer.Checker { return uncachedChecker{c} }

type uncachedChecker struct{ cell *Cell }

func (k uncachedChecker) CheckSequencer(ctx context.Context, s sequencer.Sequencer) error {
	return k.cell.CheckSequencer(ctx, s.String())
}

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
