package recipe

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// configPause is between two attempts after a refusal that is not for want of a session, such as
// PermissionDenied: what it takes to end it is a person.
const configPause = 10 * time.Second

// upkeep keeps something up to date here by what is told in a session, in one session after the other: a ConfigFile,
// a Tree.
type upkeep struct {
	stop    context.CancelFunc
	stopped chan struct{} // closed when nothing runs any more
	ready   chan struct{} // closed when there is something, or never will be

	mu     sync.Mutex     // guards what follows, and what is kept
	loaded bool           // there is something
	c      *client.Client // the present session; nil while there is none
	err    error          // why there is nothing, or it is not up to date
}

func newUpkeep() upkeep {
	return upkeep{stopped: make(chan struct{}), ready: make(chan struct{})}
}

// upkept is what is kept.
type upkept interface {
	// follow keeps it up to date as long as the session lasts. Who has loaded it for the first time closes ready.
	follow(ctx context.Context, c *client.Client) error
	// fail takes note of an error, and reports whether it was loaded.
	fail(err error) (loaded bool)
}

// begin keeps something up to date until end, and waits until it is loaded. ctx bounds the wait only. With an error,
// which says what was in the way last, nothing runs any more. what is in words what is waited for.
func (u *upkeep) begin(ctx context.Context, from client.Sessions, it upkept, what, path string) error {
	if keeper, is := from.(*client.Keeper); from == nil || is && keeper == nil { // a panic would come in a goroutine that is not the caller's
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

// run keeps a session until ctx ends, or it turns out that there will be nothing.
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

// end ends the session, unless that is a Keeper's, and returns when nothing runs any more.
func (u *upkeep) end() {
	u.stop()
	<-u.stopped
}
