package client

import (
	"context"
	"crypto/rand"
	"os"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// Client is a session with a cell, and a way to look at that cell. Its methods
// may be called from several goroutines. It must be closed, also when the
// session is gone.
type Client struct {
	*Cell

	session  *belief
	numbers  *numbers
	janitor  *janitor
	notifier *notifier
	handles  *handles
	cache    *cache
	auditor  *auditor
	keeper   *keeper

	running sync.WaitGroup
	stop    chan struct{} // closed by Close: the notifier may go
	closing sync.Once
	closed  error // of the first Close; set before closing is done
}

// nonceSize is the bytes of chance that name a session before it has a number:
// enough that no two clients choose the same.
const nonceSize = 16

// New finds the master of a cell and opens a session with it. It keeps trying
// until ctx ends, and then fails with Unavailable, saying whom it asked and what
// each answered; a server of another cell is WrongCell, at once. ctx bounds New
// only: the session lives until Close, or until it is lost (Done).
func New(ctx context.Context, cfg Config) (*Client, error) {
	cell, err := Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c := &Client{
		Cell: cell, numbers: newNumbers(), janitor: newJanitor(), notifier: newNotifier(), handles: newHandles(),
		auditor: newAuditor(), stop: make(chan struct{}),
	}
	if err := c.create(ctx); err != nil {
		_ = cell.Close() // it never fails
		return nil, err
	}
	c.running.Go(c.session.run)
	c.keeper = newKeeper(ctx, c)
	c.running.Go(c.keeper.run)
	c.running.Go(func() { c.janitor.run(c.session.over) })
	c.running.Go(func() { c.runAudits(c.session.over) })
	c.running.Go(func() { c.notifier.run(c.stop) })
	return c, nil
}

// create makes the session, under one nonce however often it takes.
func (c *Client) create(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // it is for people
	}
	request := &chubbypb.CreateSessionRequest{
		Cell: c.cfg.Cell, Nonce: make([]byte, nonceSize), LeaseNs: int64(c.cfg.Lease), Host: host, Pid: int64(os.Getpid()), As: c.cfg.As,
		MayCache: !c.cfg.NoCache,
	}
	rand.Read(request.Nonce)
	_, err = c.finder.run(ctx, call{op: "open a session", path: c.root(),
		attempt: func(ctx context.Context, t *target, _ *chubbypb.Caller) error {
			sent := c.cfg.Clock() // of this attempt: the lease counts from the request that is answered
			reply, err := t.chubby.CreateSession(ctx, request)
			if err == nil {
				c.cache = newCache(c.cfg.cacheLimit(), api.Epoch(reply.GetEpoch()))
				c.session = newBelief(ctx, c.cfg, sent, reply, c.notifier.post, func() { c.cache.flush(0) })
			}
			return err
		}})
	return err
}

// closeTime bounds how long Close tries to reach the master: a session that
// cannot be ended ends by itself.
const closeTime = 5 * time.Second

// Close ends the session, which frees its locks at once, closes the
// connections, and returns when no goroutine of the client runs any more. The
// contexts of locks are cancelled first, and the caller says by it that the work
// under them has stopped. It tries to reach the master until ctx ends, at most
// 5 s. An error means that the cell may keep the session, and its locks, until
// lease and lock-delay are over; the client is closed all the same. Later calls
// of Close do nothing and return the same.
func (c *Client) Close(ctx context.Context) error {
	c.closing.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, closeTime)
		defer cancel()
		own := c.session.end(Closed, "it was closed")
		for _, l := range c.handles.locks() {
			l.letGo()
		}
		if own {
			c.closed = c.endOwn(ctx)
		} else {
			// The cell had ended it, and may wait to hear that all has been let go.
			select {
			case <-c.keeper.done:
			case <-ctx.Done():
			}
		}
		c.keeper.leave()
		close(c.stop)
		_ = c.Cell.Close() // it never fails
		c.running.Wait()
	})
	return c.closed
}

// endOwn ends this client's session at the cell.
func (c *Client) endOwn(ctx context.Context) error {
	_, err := c.finder.run(ctx, call{op: "close the session", path: c.root(),
		attempt: func(ctx context.Context, t *target, _ *chubbypb.Caller) error {
			_, err := t.chubby.EndSession(ctx, &chubbypb.EndSessionRequest{Caller: c.session.caller()})
			return err
		}})
	if api.CodeOf(err) == api.SessionExpired {
		return nil
	}
	return err
}

// Session returns the number of the session.
func (c *Client) Session() api.SessionID { return c.session.id }

// Epoch returns the epoch of the newest master that the session has heard of.
func (c *Client) Epoch() api.Epoch { return api.Epoch(c.session.caller().GetEpoch()) }

// State looks at the clock and says what may be believed of the session.
func (c *Client) State() session.State {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return c.session.look()
}

// Left returns how long the lease still runs by the local clock: negative once
// it ran out.
func (c *Client) Left() time.Duration {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return c.session.local.End().Sub(c.session.clock())
}

// Lease returns the length of the newest grant, which may be longer than the
// one asked for.
func (c *Client) Lease() time.Duration {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return c.session.local.Lease()
}

// CacheStats counts what became of reads. It is all zero with Config.NoCache.
func (c *Client) CacheStats() CacheStats { return c.cache.count() }

// Done is closed when the session is gone, or the client closed.
func (c *Client) Done() <-chan struct{} { return c.session.over.Done() }

// Err says why the session is gone, nil while it is not: an *api.Error with the
// code SessionExpired that wraps a Cause (Closed, EndedByCell or GraceOver).
func (c *Client) Err() error {
	if why := c.session.gone(); why != nil {
		return why
	}
	return nil
}
