package recipe

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// configPause separates attempts after an error other than a missing session, such as PermissionDenied: a
// person must end it.
const configPause = 10 * time.Second

// upkeep keeps a ConfigFile or a Tree up to date from events, in one session after the other.
type upkeep struct {
	onError func(error) // may be nil
	stop    context.CancelFunc
	stopped chan struct{} // closed when nothing runs
	ready   chan struct{} // closed when loaded, or when that cannot happen

	mu      sync.Mutex     // guards what follows, and what is kept
	loaded  bool           // something is loaded
	c       *client.Client // the session, or nil
	err     error          // why nothing is loaded, or it is outdated
	changed chan struct{}  // closed and replaced at each change
}

func newUpkeep(onError func(error)) upkeep {
	return upkeep{onError: onError, stopped: make(chan struct{}), ready: make(chan struct{}), changed: make(chan struct{})}
}

// enter records the session, or that there is none.
func (u *upkeep) enter(c *client.Client) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.c = c
	u.broadcast()
}

// fail reports an error, and returns whether something is loaded.
func (u *upkeep) fail(err error) (loaded bool) {
	u.mu.Lock()
	loaded, u.err = u.loaded, err
	u.broadcast()
	u.mu.Unlock()
	if u.onError != nil {
		u.onError(err)
	}
	return loaded
}

// broadcast reports a change. mu is held.
func (u *upkeep) broadcast() {
	close(u.changed)
	u.changed = make(chan struct{})
}

// begin keeps something up to date until end, by follow as long as a session lasts, and waits until it is
// loaded: the first load closes ready. ctx bounds the wait only. After an error, which is the last obstacle,
// nothing runs. what names it in words.
func (u *upkeep) begin(ctx context.Context, from client.Sessions, follow func(context.Context, *client.Client) error, what, path string) error {
	if keeper, is := from.(*client.Keeper); from == nil || is && keeper == nil { // a panic would come in another goroutine
		return &api.Error{Code: api.InvalidArgument, Op: "watch", Path: path, Message: "the sessions are nil; give a client.Config or a *client.Keeper"}
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	u.stop = stop
	go func() {
		defer close(u.stopped)
		u.run(life, from, follow)
	}()
	var why error
	select {
	case <-u.ready:
	case <-ctx.Done():
		why = hold.Ended(ctx, ctx.Err(), "wait for the "+what, path)
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

func (u *upkeep) run(ctx context.Context, from client.Sessions, follow func(context.Context, *client.Client) error) {
	for ctx.Err() == nil {
		err := from.Renew(ctx, follow)
		if ctx.Err() != nil {
			return
		}
		if !u.fail(err) {
			close(u.ready)
			return
		}
		wait(ctx, configPause)
	}
}

func (u *upkeep) end() {
	u.stop()
	<-u.stopped
}
