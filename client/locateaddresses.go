package client

import (
	"context"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
)

// serverList is where replicas may be.
type serverList struct {
	found []string // the addresses that were last looked up
	told  []string // those that a replica last said the cell has, since its replicas were changed
}

// all returns all of them, some twice.
func (s serverList) all() []string { return slices.Concat(s.found, s.told) }

// lookup is one reading of the sources of the servers' addresses (see Servers). A
// locator has one at a time.
type lookup struct {
	cancel  context.CancelFunc
	done    chan struct{} // closed when what follows is set
	servers []string
	err     error
}

// addresses returns the addresses of the replicas to ask. The sources are read again in
// every round: an address that was looked up only once would send a client permanently
// to where its cell once was. If the sources cannot be read now, or a name service
// takes longer than hedgeDelay, the previous result serves, because a lease leaves
// little time to find another master; what the look-up brings later serves the next
// round.
func (l *locator) addresses(ctx context.Context) ([]string, error) {
	look, known := l.startLookup(ctx)
	if look == nil {
		return nil, closedError()
	}
	var late <-chan time.Time
	if len(known) > 0 {
		timer := time.NewTimer(hedgeDelay)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-look.done:
	case <-late:
		return known, nil
	case <-ctx.Done():
		return nil, &api.Error{Code: api.Unavailable, Message: "the servers of the cell have not been looked up yet", Err: contextError(ctx)}
	}
	if look.err != nil && len(known) > 0 {
		l.cfg.Logger.InfoContext(ctx, "the servers of the cell could not be looked up again", "cell", l.cfg.Cell, "error", look.err)
		return known, nil
	}
	return look.servers, look.err
}

// startLookup starts a look-up, unless one is running, and returns it with what the
// last one found; nil after close.
func (l *locator) startLookup(ctx context.Context) (*lookup, []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := slices.Clone(l.servers.found)
	if l.closed || l.lookup != nil {
		return l.lookup, known
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.DialTimeout)
	look := &lookup{cancel: cancel, done: make(chan struct{})}
	l.lookup = look
	l.running.Go(func() {
		defer cancel()
		look.servers, look.err = l.resolve(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.lookup = nil; look.err == nil {
			l.servers.found = look.servers
		}
		close(look.done)
	})
	return look, known
}
