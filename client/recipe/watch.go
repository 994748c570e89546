package recipe

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const (
	// verify is how often a followed node is looked at without an event: a lease, as a session that is waited
	// for may have been dead that long.
	verify = api.DefaultLease
	// together is how long to wait for more events after one, so that one look covers them.
	together = 5 * time.Millisecond
	// leaveTime limits how long the end of a recipe waits to close a handle or release a lock while the cell
	// is away; the rest goes on in the background.
	leaveTime = 2 * time.Second
)

type sight struct {
	*client.Handle // open for the events; follow closes it. nil: no such node

	// events are those since the sight before: a look now sees their effects. Without events the node has
	// just been opened, and anything may have happened; or the sight is due.
	events []api.Event
	due    bool // a period of verify is over
}

// tells reports whether the sight may be about a child of that name.
func (s sight) tells(child string) bool {
	return len(s.events) == 0 || s.restarted() || slices.ContainsFunc(s.events, func(e api.Event) bool { return e.Child == child })
}

func (s sight) restarted() bool {
	return slices.ContainsFunc(s.events, func(e api.Event) bool {
		return e.Kind == api.EventMasterFailedOver || e.Kind == api.EventLost
	})
}

// follow ranges over the moments to look at a node: at once, after events that it is opened for, after events
// may have been lost (a fail-over, a full queue), and, while the node exists, once in each period of verify,
// for changes without events: an ended session, or one made while this program could not read the node. The
// handle is open for events before the look, so none between is missed. An absent node is one sight with a
// nil Handle; follow then waits for it by way of its directory, unless the options create it.
//
// A look that fails with HandleClosed or NotFound (see gone) has met the end of the node: the next sight
// knows. The last item is an error: of ctx, of the session, or an answer such as PermissionDenied. Handles
// are closed when the loop ends, or goes on to another.
func follow(ctx context.Context, c *client.Client, path string, o client.OpenOptions) iter.Seq2[sight, error] {
	return func(yield func(sight, error) bool) {
		for more := true; more; {
			h, err := c.Open(ctx, path, o)
			switch {
			case err == nil:
				more = followOne(ctx, h, yield)
				leave(ctx, h)
				continue
			case errors.Is(err, api.NotFound), o.Create == client.Existing && errors.Is(err, api.Exists): // or it is being removed
				if !yield(sight{}, nil) {
					return
				}
				if err = appear(ctx, c, path); err == nil {
					continue
				}
			}
			yield(sight{}, ended(ctx, err, "follow", path))
			return
		}
	}
}

// looks ranges over what look finds at each sight of a node. It leaves out a look that has met the end of the
// node: the next sight knows. After an error there is no other item.
func looks[T any](ctx context.Context, c *client.Client, path string, o client.OpenOptions, look func(s sight) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for s, err := range follow(ctx, c, path, o) {
			var found T
			if err == nil {
				if found, err = look(s); gone(err) {
					continue
				}
			}
			if !yield(found, err) || err != nil {
				return
			}
		}
	}
}

// followOne follows one instance of a node. It reports whether to go on with the next.
func followOne(ctx context.Context, h *client.Handle, yield func(sight, error) bool) bool {
	for s := (sight{Handle: h}); ; s.due = true {
		if due, next := followFor(ctx, h, s, yield); !due {
			return next
		}
	}
}

// followFor is followOne from one sight on, until the next look is due.
func followFor(ctx context.Context, h *client.Handle, s sight, yield func(sight, error) bool) (due, next bool) {
	within, stop := context.WithTimeout(ctx, verify)
	defer stop()
	for yield(s, nil) {
		events, err := gather(within, h)
		s = sight{Handle: h, events: events}
		switch {
		case errors.Is(err, api.HandleClosed):
			return false, true
		case errors.Is(err, api.DeadlineExceeded) && ctx.Err() == nil:
			return true, false
		case err != nil:
			yield(sight{}, err)
			return false, false
		case slices.ContainsFunc(events, func(e api.Event) bool { return e.Kind == api.EventHandleInvalid }):
			return false, true
		}
	}
	return false, false
}

func gather(ctx context.Context, h *client.Handle) ([]api.Event, error) {
	e, err := h.Next(ctx)
	if err != nil {
		return nil, err
	}
	events := []api.Event{e}
	soon, cancel := context.WithTimeout(ctx, together)
	defer cancel()
	for len(events) < api.MaxEventQueue {
		if e, err = h.Next(soon); err != nil {
			break // time is over, or the next call finds it again
		}
		events = append(events, e)
	}
	return events, nil
}

// wait waits for some time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// appear waits until a node of that name may exist, however it is opened.
func appear(ctx context.Context, c *client.Client, path string) error {
	p, err := api.ParsePath(path)
	if err != nil {
		return err
	}
	above := client.OpenOptions{Read: true, Events: []api.EventKind{api.EventChildAdded}}
	for s, err := range follow(ctx, c, p.Parent().String(), above) {
		if err != nil {
			return err
		}
		if s.Handle == nil || !s.tells(p.Base()) {
			continue
		}
		h, err := c.Open(ctx, path, client.OpenOptions{Read: true})
		if err == nil {
			leave(ctx, h)
		}
		if !errors.Is(err, api.NotFound) && !errors.Is(err, api.Exists) { // Exists: the earlier one is being removed
			return nil
		}
	}
	return nil
}

// keepsAlive is the error for following an ephemeral file by an open handle.
func keepsAlive(op, path string) error {
	return &api.Error{Code: api.InvalidArgument, Op: op, Path: path,
		Message: "the file is ephemeral, and who follows it has it open, so that it would never go; make it a permanent file"}
}

// gone reports whether an error says that a node no longer exists.
func gone(err error) bool { return errors.Is(err, api.HandleClosed) || errors.Is(err, api.NotFound) }

// unusable reports whether an error concerns one file of a recipe's directory only: it is gone, being removed
// (Exists), no file, or not for this program. Recipes skip such a file.
func unusable(err error) bool {
	return gone(err) || slices.Contains([]api.Code{api.Exists, api.PermissionDenied, api.IsDirectory, api.NotDirectory}, api.CodeOf(err))
}

// ended returns the error of a recipe's call: that it was given up, if so, whatever the inner call may have
// left uncertain.
func ended(ctx context.Context, err error, op, path string) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	e := &api.Error{Code: api.ContextCode(ctx.Err()), Op: op, Path: path, Err: err, Message: "its time was over"}
	if said := (*api.Error)(nil); errors.As(err, &said) && said.Code == e.Code && said.Op == op && said.Path == path {
		return err // it says so already
	}
	if e.Code == api.Cancelled {
		e.Message = "it was given up"
	}
	return e
}
