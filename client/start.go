package client

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// nonceSize is the number of random bytes that name a session without a number yet, enough to be unique.
const nonceSize = 16

// New finds the master of a cell and opens a session with it. It retries until ctx ends, and then fails with
// Unavailable, or with Cancelled if ctx was cancelled; the error lists the servers and their answers. A
// server of another cell is WrongCell at once. ctx bounds New only: the session lives until Close, or until
// its loss (Done).
func New(ctx context.Context, cfg Config) (*Client, error) {
	cell, err := Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c, err := cell.NewSession(ctx, cfg.Session())
	if err != nil {
		_ = cell.Close() // never fails
		return nil, err
	}
	c.ownsCell = true
	return c, nil
}

// NewSession opens a session over the connections of the Cell, as New does. The sessions of a Cell share only
// its connections and its search for the master; the session's part of the Cell's Config does not apply to
// them. Close
// the Client before the Cell; the Client's Close leaves the Cell open.
//
// A Cell has at most 1,000 sessions; beyond that NewSession fails with QuotaExceeded. Of all their requests
// for locks, 1,000 are in queues at a time (see Handle.Acquire). Of their reads, changes and cleanup calls
// (Release, Close of a handle) 200, 256 and 128 are pending; others wait. KeepAlives never wait: they share a
// separate connection with cleanup calls only.
func (c *Cell) NewSession(ctx context.Context, s SessionConfig) (*Client, error) {
	cfg := c.cfg.withSession(s).withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	one := &Client{
		cell:         c,
		cfg:          cfg,
		numbers:      newRequestNumbers(c.places),
		janitor:      newJanitor(),
		notifier:     newNotifier(),
		handles:      newHandleTable(),
		stopNotifier: make(chan struct{}),
	}
	one.auditor = newAuditor(one)
	if err := c.sessions.reserve(one); err != nil {
		return nil, withOperation(err, "open a session", rootPath(c.cfg))
	}
	if err := one.createSession(ctx); err != nil {
		c.sessions.remove(one)
		return nil, err
	}
	if !c.sessions.add(one) {
		c.sessions.remove(one)
		one.session.endSession(Closed, "its Cell was closed")
		return nil, one.Err()
	}
	one.startGoroutines(untraced(ctx, cfg))
	c.cfg.Meter.opened(one)
	return one, nil
}

func (c *Client) startGoroutines(ctx context.Context) {
	c.running.Go(c.session.watchClock)
	c.keeper = newKeeper(ctx, c)
	c.running.Go(func() {
		c.keeper.keepAlive()
		if !errors.Is(c.Err(), Closed) {
			c.cell.sessions.remove(c) // the session was lost, and its owner may close it much later
		}
	})
	c.running.Go(func() {
		c.janitor.settleAll(c.session.ended)
		c.numbers.releasePlaces()
	})
	c.running.Go(func() { c.auditor.runAudits(c.session.ended) })
	if c.cache.enabled() && c.cache.lease.required {
		c.running.Go(func() { renewCacheLeases(c) })
	}
	c.running.Go(func() { c.notifier.deliverAll(c.stopNotifier) })
}

// createSession creates the session at the cell, under one nonce in all attempts.
func (c *Client) createSession(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // only people read it
	}
	request := &chubbypb.CreateSessionRequest{
		Cell:     c.cfg.Cell,
		Nonce:    make([]byte, nonceSize),
		LeaseNs:  int64(c.cfg.Lease),
		Host:     host,
		Pid:      int64(os.Getpid()),
		As:       c.cfg.As,
		MayCache: !c.cfg.NoCache,

		CacheLease: !c.cfg.NoCache,
	}
	rand.Read(request.Nonce)
	_, err = c.cell.dispatcher.dispatch(ctx, call{op: "open a session", path: rootPath(c.cell.cfg), class: classUnlimited,
		attempt: func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
			request.Request = caller.GetRequest()
			t.data.Connect()      // meanwhile, as calls over it follow
			sent := c.cfg.Clock() // of this attempt: the lease counts from the answered attempt
			reply, err := t.control().chubby.CreateSession(ctx, request)
			if err == nil {
				limit := c.cfg.CacheSize
				if c.cfg.NoCache {
					limit = 0
				}
				c.cache = newCache(limit, api.Epoch(reply.GetEpoch()))
				c.cache.discard, c.cache.lease.required = c.closeIdleHandle, reply.GetCacheLease()
				c.session = newSessionState(untraced(ctx, c.cfg), c, sent, reply)
			}
			return err
		}})
	return err
}

// maxCloseTime limits how long Close tries to reach the master. Otherwise the session ends with its lease.
const maxCloseTime = 5 * time.Second

// Close cancels the contexts of the locks, ends the session, which frees its locks at once, closes the
// connections that New has made for it, and returns when its goroutines have ended. A caller of Close says
// that the work under the locks has stopped. Close does not wait for other calls' background work: the end of
// the session releases every lock and closes every handle.
//
// It tries to reach the master until the deadline of ctx, for 5 s at most; for CleanupTime if ctx has been
// cancelled, also before the call (see CleanupContext), or if the lease has run out. So defer it with the
// context that a signal ends. After an error the cell may keep the session and its locks until lease and
// lock-delay have passed, but the client is closed. Later calls return the same.
func (c *Client) Close(ctx context.Context) error {
	c.closeOnce.Do(func() {
		ctx, cancel := newCleanupContext(ctx)
		defer cancel()
		timeout := maxCloseTime
		if c.Left() <= 0 {
			timeout = CleanupTime // after the lease little is gained
		}
		ctx, stop := context.WithTimeout(ctx, timeout)
		defer stop()
		own := c.session.endSession(Closed, "it was closed")
		for _, l := range c.handles.unreleasedLocks() {
			l.markReleased()
		}
		switch {
		case own:
			c.closeError = c.endOwnSession(ctx)
		case errors.Is(c.Err(), Closed): // by Close of the Cell, or abandoned
			c.closeError = &api.Error{Code: api.Unavailable, Op: "close the session", Path: rootPath(c.cell.cfg), Err: Closed,
				Message: "it was abandoned, or its Cell closed before it, so that the cell could not be told; close the sessions of a Cell first"}
		default:
			// The cell has ended the session, and may wait for the acknowledgement, which the release of the
			// locks allows.
			select {
			case <-c.keeper.done:
			case <-ctx.Done():
			}
		}
		c.keeper.stop()
		close(c.stopNotifier)
		c.cell.sessions.remove(c)
		if c.ownsCell {
			_ = c.cell.Close() // never fails
		}
		c.running.Wait()
		c.cell.cfg.Meter.closed(c)
	})
	return c.closeError
}

// endOwnSession ends this client's session at the cell. It names the latest known epoch, as masters refuse an
// earlier one.
func (c *Client) endOwnSession(ctx context.Context) error {
	_, err := c.cell.dispatcher.dispatch(ctx, call{op: "close the session", path: rootPath(c.cell.cfg), class: classUnlimited,
		attempt: func(ctx context.Context, t *target, of *chubbypb.Caller) error {
			caller := c.session.wireCaller()
			caller.Request = of.GetRequest()
			caller.Epoch = max(caller.GetEpoch(), uint64(c.cell.locator.latestEpoch()))
			_, err := t.control().chubby.EndSession(ctx, &chubbypb.EndSessionRequest{Caller: caller})
			return err
		}})
	if api.CodeOf(err) == api.SessionExpired {
		return nil
	}
	return err
}

// CheckSequencer is Cell.CheckSequencer, a call of the paper (Chubby §2.6).
func (c *Client) CheckSequencer(ctx context.Context, text string) error {
	return c.cell.CheckSequencer(ctx, text)
}
