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
	// verify is how often what is followed is looked at although no event tells of it: a lease, since a
	// session that is waited for may have been dead for so long already.
	verify = api.DefaultLease
	// together is how long after an event more are waited for: what happens at once is looked at once,
	// and a directory that is busy is not listed for each child.
	together = 5 * time.Millisecond
	// leaveTime bounds how long the end of a recipe waits for a handle to be closed, or a lock to be
	// released, while the cell is away; what is not done by then is done in the background.
	leaveTime = 2 * time.Second
)

// sight is a moment at which a node is to be looked at.
type sight struct {
	*client.Handle // open for the events; follow closes it. nil: there is no such node

	// events are what has happened since the sight before: whoever looks now sees all of it. None means
	// that the node has just been opened, and anything may have happened; or that the sight is due.
	events []api.Event
	due    bool // a period of verify is over, whatever has happened
}

// tells reports whether the sight may be about a child of that name.
func (s sight) tells(child string) bool {
	return len(s.events) == 0 || s.restarted() || slices.ContainsFunc(s.events, func(e api.Event) bool { return e.Child == child })
}

// restarted reports whether events may have been lost before the sight.
func (s sight) restarted() bool {
	return slices.ContainsFunc(s.events, func(e api.Event) bool {
		return e.Kind == api.EventMasterFailedOver || e.Kind == api.EventLost
	})
}

// follow ranges over the moments at which a node is to be looked at: at once, whenever events have come
// of those it is opened for, when some may have been lost (a fail-over, a queue that was full), and, while
// there is the node, once in each period of verify, for what no event tells: that a session has ended, and
// what was done while this program might not read the node. The handle is open for events before the look,
// so that nothing is missed between the two. When there is no such node, or no more, that is one sight with
// a nil Handle, and then it is waited for, by way of the directory it will be in; unless the options create it.
//
// A look that fails with HandleClosed or NotFound (see gone) has met the end of the node: the loop goes
// on to the next sight, which knows. What comes last is an error: of ctx, of the session, or an answer
// such as PermissionDenied. Handles are closed when the loop ends, or goes on to another.
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

// followOne follows one instance of a node. It reports whether to go on with the next.
func followOne(ctx context.Context, h *client.Handle, yield func(sight, error) bool) bool {
	s := sight{Handle: h}
	for {
		due, next := followFor(ctx, h, s, yield)
		if !due {
			return next
		}
		s = sight{Handle: h, due: true}
	}
}

// followFor is followOne, from one sight on, until the next look is due.
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

// gather waits for an event, and takes those that come with it.
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
			break // of time, or it is found again by the next call
		}
		events = append(events, e)
	}
	return events, nil
}

// appear waits until there may be a node of that name, whatever it takes to open it.
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
		if !errors.Is(err, api.NotFound) && !errors.Is(err, api.Exists) { // Exists: the one before is being removed
			return nil
		}
	}
	return nil
}

// keepsAlive is the error of what follows a file by a handle that stays open, where the file is ephemeral.
func keepsAlive(op, path string) error {
	return &api.Error{Code: api.InvalidArgument, Op: op, Path: path,
		Message: "the file is ephemeral, and who follows it has it open, so that it would never go; make it a permanent file"}
}

// gone reports whether an error says that a node is not there any more.
func gone(err error) bool { return errors.Is(err, api.HandleClosed) || errors.Is(err, api.NotFound) }

// unusable reports whether an error is about one file of a recipe's directory and says nothing of the
// others: it is gone, or being removed (Exists), or is a stranger's that this program may not use, or no
// file at all. Such a file holds up nobody: it is passed over.
func unusable(err error) bool {
	return gone(err) || slices.Contains([]api.Code{api.Exists, api.PermissionDenied, api.IsDirectory, api.NotDirectory}, api.CodeOf(err))
}

// ended returns the error of a call of a recipe: that it was given up, if that is what has happened,
// whatever the call under it may have left uncertain.
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
