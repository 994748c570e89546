package client

import (
	"context"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
)

// lookup is one look at the sources of the servers' addresses, of which a finder
// has one at a time.
type lookup struct {
	cancel  context.CancelFunc
	done    chan struct{} // closed when what follows is set
	servers []string
	err     error
}

// addresses returns where replicas are to be asked. The sources are read again in
// every round, because a name that is looked up once sends a client permanently to
// where its cell was. If they cannot be read now, or a name service takes longer
// than a replica may for an answer, the last answer serves: a lease leaves little
// time to find another master. What the look-up brings later is for the next round.
func (f *finder) addresses(ctx context.Context) ([]string, error) {
	l, known := f.lookUp(ctx)
	if l == nil {
		return nil, closedError()
	}
	var late <-chan time.Time
	if len(known) > 0 {
		timer := time.NewTimer(hedge)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-l.done:
	case <-late:
		return known, nil
	case <-ctx.Done():
		return nil, &api.Error{Code: api.Unavailable, Message: "the servers of the cell have not been looked up yet", Err: contextError(ctx)}
	}
	if l.err != nil && len(known) > 0 {
		f.cfg.Logger.InfoContext(ctx, "the servers of the cell could not be looked up again", "cell", f.cfg.Cell, "error", l.err)
		return known, nil
	}
	return l.servers, l.err
}

// lookUp begins a look-up, unless one is under way, and returns it with what the
// last one found; nil after close.
func (f *finder) lookUp(ctx context.Context) (*lookup, []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := slices.Clone(f.servers)
	if f.closed || f.lookup != nil {
		return f.lookup, known
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cfg.DialTimeout)
	l := &lookup{cancel: cancel, done: make(chan struct{})}
	f.lookup = l
	f.running.Go(func() {
		defer cancel()
		l.servers, l.err = f.resolve(ctx)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.lookup = nil; l.err == nil {
			f.servers = l.servers
		}
		close(l.done)
	})
	return l, known
}
