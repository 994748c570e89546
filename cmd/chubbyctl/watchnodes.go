package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// watchedNode is a node followed by a handle.
type watchedNode struct {
	watched
	o      *watchOptions
	path   api.Path
	stat   api.Stat // at its first opening
	handle *client.Handle
	gone   string  // why it is missing in this session
	known  outlook // the state at the beginning of the session, and reported since
}

func (*watchedNode) end() {} // the session closes the handle

func (n *watchedNode) about() (p api.Path, remark string) {
	switch children := slices.ContainsFunc(n.o.kinds, api.EventKind.OfChild); {
	case n.stat.Kind == api.Directory && !children:
		remark = "is a directory; --children tells of what is in it"
	case n.stat.Kind == api.File && children:
		remark = "is a file, and has no children"
	}
	return n.path, remark
}

// begin opens a node in a session. In a later session than the first, a missing node is no error, but reported
// as an event.
func (n *watchedNode) begin(ctx context.Context, c *client.Client) error {
	first := n.handle == nil
	h, err := c.Open(ctx, n.path.String(), client.OpenOptions{Read: true, Events: n.o.kinds})
	if errors.Is(err, api.NotFound) && !first {
		n.gone = "it was deleted while there was no session"
		return nil
	}
	if err != nil {
		return err
	}
	stat, err := h.Stat(ctx)
	listed := stat.Kind == api.Directory && slices.ContainsFunc(n.o.kinds, api.EventKind.OfChild)
	var now outlook
	if err == nil {
		now, err = lookAt(ctx, h, listed)
	}
	switch {
	case errors.Is(err, api.HandleClosed) && !first, err == nil && !first && stat.Instance != n.stat.Instance:
		n.gone = "it was deleted, and perhaps made again, while there was no session"
		return nil
	case err != nil:
		return err
	case n.o.contents != "" && stat.Kind == api.Directory:
		return usagef("--contents: %v is a directory, and has none", n.path)
	}
	n.handle, n.known = h, now
	if !first {
		return nil
	}
	n.stat, n.owed, n.children = stat, n.o.initial, maps.Clone(now.children)
	if !n.owed {
		n.handed = stat.Content
	}
	n.contents = func(ctx context.Context) (*watchedContents, error) {
		if n.gone != "" {
			return nil, n.goneError()
		}
		contents, stat, err := n.handle.Contents(ctx)
		if err != nil {
			return nil, err
		}
		return newWatchedContents(contents, stat), nil
	}
	n.look = func(ctx context.Context) (outlook, error) {
		if n.gone != "" {
			return outlook{}, n.goneError()
		}
		return lookAt(ctx, n.handle, listed)
	}
	return nil
}

// goneError is the error for a node missing in this session.
func (n *watchedNode) goneError() error { return api.Errorf(api.HandleClosed, "%s", n.gone) }

// lookAt reads the state; for a listed directory, with its children.
func lookAt(ctx context.Context, h *client.Handle, listed bool) (outlook, error) {
	stat, err := h.Stat(ctx)
	now := outlook{content: stat.Content}
	if err != nil || !listed {
		return now, err
	}
	list, err := h.ReadDir(ctx)
	now.children = map[string]api.Generation{}
	for _, one := range list {
		now.children[one.Path.Base()] = max(one.Instance, one.Content, one.ACLs)
	}
	return now, err
}

// owes returns CMD's initial event, if it has yet to get that.
func (n *watchedNode) owes() []happening {
	if !n.owed || n.gone != "" {
		return nil
	}
	return []happening{initially(&n.watched, n.path, n.known.content)}
}

// initially is CMD's initial event.
func initially(w *watched, p api.Path, generation api.Generation) happening {
	return happening{Event: api.Event{Kind: api.EventContentsModified, Path: p.String(), Generation: generation}, of: w, initial: true}
}

func (n *watchedNode) pump(ctx context.Context, gap error) error {
	e := api.Event{Kind: api.EventLost, Path: n.path.String()}
	switch {
	case n.gone != "":
		e.Kind, e.Generation, e.Reason, e.Explanation = api.EventHandleInvalid, n.stat.Instance, api.ByDeletion, n.gone
	case gap != nil:
		e.Explanation = describeGap(gap)
	default:
		e.Kind = 0
	}
	for {
		if e.Kind != 0 {
			if err := n.o.backlog.put(ctx, happening{Event: explained(e), of: &n.watched}); err != nil {
				return err
			}
		}
		if e.Kind == api.EventHandleInvalid {
			return nil
		}
		var err error
		if e, err = n.next(ctx); err != nil {
			return err
		}
	}
}

// next waits for an event. Without one it looks once a lease: changes of an unreadable node cause no event.
func (n *watchedNode) next(ctx context.Context) (api.Event, error) {
	for {
		e, quiet, err := n.within(ctx, api.DefaultLease)
		if quiet {
			now, failed := lookAt(ctx, n.handle, n.known.children != nil)
			if failed != nil {
				continue // Next knows why
			}
			before := n.known
			if !slices.ContainsFunc(n.o.kinds, func(kind api.EventKind) bool { return now.shows(kind, &before) }) {
				n.known = now
				continue
			}
			if e, quiet, err = n.within(ctx, time.Second); quiet { // else it was pending
				n.known = now
				return api.Event{Kind: api.EventLost, Path: n.path.String(), Explanation: "something was done while it might not be read: look again"}, nil
			}
		}
		n.known.hear(e)
		return e, err
	}
}

// within waits for an event, and reports whether none came.
func (n *watchedNode) within(ctx context.Context, d time.Duration) (e api.Event, quiet bool, err error) {
	some, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	e, err = n.handle.Next(some)
	return e, errors.Is(err, api.DeadlineExceeded) && ctx.Err() == nil, err
}
