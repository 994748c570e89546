package recipe

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// configPause separates attempts after an error other than a missing session, such as PermissionDenied: a
// person must end it.
const configPause = 10 * time.Second

// upkeep keeps a ConfigFile or a Tree up to date from events, in one session after the other.
type upkeep struct {
	stop    context.CancelFunc
	stopped chan struct{} // closed when nothing runs
	ready   chan struct{} // closed when loaded, or when that cannot happen

	mu     sync.Mutex     // guards what follows, and what is kept
	loaded bool           // something is loaded
	c      *client.Client // the session, or nil
	err    error          // why nothing is loaded, or it is outdated
}

func newUpkeep() upkeep {
	return upkeep{stopped: make(chan struct{}), ready: make(chan struct{})}
}

type upkept interface {
	// follow keeps it up to date as long as the session lasts. The first load closes ready.
	follow(ctx context.Context, c *client.Client) error
	// fail records an error, and reports whether it was loaded.
	fail(err error) (loaded bool)
}

// begin keeps something up to date until end, and waits until it is loaded. ctx bounds the wait only. After
// an error, which is the last obstacle, nothing runs. what names it in words.
func (u *upkeep) begin(ctx context.Context, from client.Sessions, it upkept, what, path string) error {
	if keeper, is := from.(*client.Keeper); from == nil || is && keeper == nil { // a panic would come in another goroutine
		return &api.Error{Code: api.InvalidArgument, Op: "watch", Path: path, Message: "the sessions are nil; give a client.Config or a *client.Keeper"}
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	u.stop = stop
	go func() {
		defer close(u.stopped)
		u.run(life, from, it)
	}()
	var why error
	select {
	case <-u.ready:
	case <-ctx.Done():
		why = ended(ctx, ctx.Err(), "wait for the "+what, path)
	}
	u.mu.Lock()
	loaded, last := u.loaded, u.err
	u.mu.Unlock()
	if loaded {
		return nil
	}
	u.end()
	return errors.Join(why, last)
}

func (u *upkeep) run(ctx context.Context, from client.Sessions, it upkept) {
	for {
		err := from.Renew(ctx, it.follow)
		if ctx.Err() != nil {
			return
		}
		if !it.fail(err) {
			close(u.ready)
			return
		}
		timer := time.NewTimer(configPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (u *upkeep) end() {
	u.stop()
	<-u.stopped
}
