package client

import (
	"context"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// Cell is the access to a cell, without a session. Its methods may be called from several goroutines.
type Cell struct {
	cfg        Config
	pool       *pool
	locator    *locator
	dispatcher *dispatcher
	sessions   *sessionSet
	places     *queuePlaces
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
	p := newPool(tracesOf(cfg).untraced(ctx), cfg)
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
		sessions:   newSessionSet(),
		places:     &queuePlaces{max: maxCellWaits},
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
