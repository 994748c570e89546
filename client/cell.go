package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Cell is the access to a cell, without a session. Its methods may be called from several goroutines.
type Cell struct {
	cfg        Config
	pool       *pool
	locator    *locator
	dispatcher *dispatcher
	sessions   *sessionSet
	places     chan struct{} // see requestNumbers
}

// Dial returns a Cell, without connecting yet. An invalid configuration is InvalidArgument. The Cell does not
// end with ctx.
func Dial(ctx context.Context, cfg Config) (*Cell, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	encrypted, err := newEncryption(ctx, cfg)
	if err != nil {
		return nil, err
	}
	p := newPool(untraced(ctx, cfg), cfg)
	p.encryption = encrypted
	resolve := func(ctx context.Context) ([]string, error) { return Servers(ctx, cfg.Cell) }
	if len(cfg.Servers) > 0 {
		servers, err := withPorts(cfg.Servers)
		if err != nil {
			return nil, err
		}
		resolve = func(context.Context) ([]string, error) { return servers, nil }
	}
	f := &locator{cfg: cfg, pool: p, resolve: resolve}
	return &Cell{
		cfg:        cfg,
		pool:       p,
		locator:    f,
		dispatcher: newDispatcher(cfg, f),
		sessions:   &sessionSet{open: map[*Client]*sessionState{}, max: maxSessions},
		places:     make(chan struct{}, maxCellWaits),
	}, nil
}

// Close closes the connections and returns when the Cell's own goroutines have ended. Pending calls fail.
// Open sessions end at once, for this process only: the contexts of their locks end, with the cause Closed,
// and calls fail with SessionExpired. The cell keeps them and their locks until lease and lock-delays have
// passed. So close the sessions first; otherwise close each afterwards.
func (c *Cell) Close() error {
	c.sessions.endAll()
	c.pool.close()
	c.locator.close()
	return nil
}

func (c *Cell) ask(ctx context.Context, op, path string, attempt func(ctx context.Context, t *target) error) error {
	_, err := c.dispatcher.dispatch(ctx, call{op: op, path: path, class: classRead,
		attempt: func(ctx context.Context, t *target, _ *chubbypb.Caller) error { return attempt(ctx, t) }})
	return err
}

// parsePath checks a path, and rejects another cell's, if known: the cell called local has its own name.
func (c *Cell) parsePath(op, path string) (api.Path, error) {
	p, err := api.ParsePath(path)
	if err != nil {
		return api.Path{}, fmt.Errorf("%s: %w", op, err)
	}
	name := c.locator.cellNameOr("")
	if in := p.Cell(); in != api.LocalCell && in != c.cfg.Cell && in != name && (name != "" || c.cfg.Cell != api.LocalCell) {
		return api.Path{}, &api.Error{Code: api.WrongCell, Op: op, Path: path, Cell: c.cfg.Cell,
			Message: fmt.Sprintf("the path is in cell %s, and this client is one of cell %s; open a client for each cell", in, c.cfg.Cell)}
	}
	return p, nil
}

// maxSessions limits the sessions of a Cell. A replica takes 2,000 calls at a time over one connection. Each
// session has a KeepAlive pending there, and one more call at its end; the rest is for audits, calls that
// give something back, and the search for the master.
const maxSessions = 1_000

// sessionSet is the set of open sessions of a Cell. A session leaves it when its EndSession was sent or,
// after a loss, when it sends no more KeepAlives.
type sessionSet struct {
	mu     sync.Mutex                // guards what follows; take no mutex under it
	open   map[*Client]*sessionState // nil while the session is being opened
	max    int                       // maxSessions; tests set less
	closed bool
}

// reserve reserves a place for a new session. The caller then calls add or remove.
func (s *sessionSet) reserve(c *Client) *api.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if used := len(s.open); used >= s.max {
		return api.Errorf(api.QuotaExceeded, "sessions of this Cell: %d used, %d allowed; open others over another Cell (Dial)", used, s.max)
	}
	s.open[c] = nil
	return nil
}

// add adds a session in its reserved place. It returns false if the Cell was closed.
func (s *sessionSet) add(c *Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = c.session
	return !s.closed
}

func (s *sessionSet) remove(c *Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// endAll ends all sessions for this process, and makes add reject others.
func (s *sessionSet) endAll() {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.open))
	s.mu.Unlock()
	for _, one := range all {
		if one != nil {
			one.endSession(Closed, "its Cell was closed")
		}
	}
}
