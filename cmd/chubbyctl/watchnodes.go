package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// watchedNode is a node followed by a handle.
type watchedNode struct {
	watched
	path   api.Path
	stat   api.Stat // at its first opening
	handle *client.Handle
	gone   string  // why it is missing in this session
	known  outlook // the state at the beginning of the session, and reported since
}

// runWatch follows the nodes' events. --timeout is for opening them.
func (o *watchOptions) runWatch(ctx context.Context) error {
	if o.tree {
		return o.watchTrees(ctx)
	}
	var nodes []*watchedNode
	for _, p := range o.paths {
		nodes = append(nodes, &watchedNode{path: p})
	}
	return o.withFollowing(ctx, o.paths[0], &follower{
		begin: func(ctx context.Context, c *client.Client) error {
			for _, n := range nodes {
				if err := n.open(ctx, c, o.kinds, o.initial); err != nil {
					return err
				}
				if o.contents != "" && n.stat.Kind == api.Directory {
					return usagef("--contents: %v is a directory, and has none", n.path)
				}
			}
			return nil
		},
		follow: func(within context.Context, _ *client.Client, gap error) error {
			return o.followNodes(ctx, within, nodes, gap)
		},
	})
}

// open opens a node in a session. In a later session than the first, a missing node is no error, but reported
// as an event. With initial, CMD gets the first state.
func (n *watchedNode) open(ctx context.Context, c *client.Client, kinds []api.EventKind, initial bool) error {
	first := n.handle == nil
	h, err := c.Open(ctx, n.path.String(), client.OpenOptions{Read: true, Events: kinds})
	if errors.Is(err, api.NotFound) && !first {
		n.gone = "it was deleted while there was no session"
		return nil
	}
	if err != nil {
		return err
	}
	stat, err := h.Stat(ctx)
	listed := stat.Kind == api.Directory && slices.ContainsFunc(kinds, api.EventKind.OfChild)
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
	}
	n.handle, n.known = h, now
	if !first {
		return nil
	}
	n.stat, n.owed, n.children = stat, initial, maps.Clone(now.children)
	if !initial {
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

// followNodes follows the nodes' events in one session. ctx ends with it, cmd with an interrupt.
func (o *watchOptions) followNodes(cmd, ctx context.Context, nodes []*watchedNode, gap error) error {
	if gap == nil {
		o.notice(o.err, o.describeWatch(nodes))
	}
	if err := o.beginNodes(cmd, ctx, nodes); err != nil {
		return err
	}
	var pumps []func(context.Context) error
	for _, n := range nodes {
		pumps = append(pumps, func(ctx context.Context) error { return n.pump(ctx, o.backlog, o.kinds, gap) })
	}
	return o.consume(cmd, ctx, pumps...)
}

// beginNodes runs CMD for the initial state of each node that needs it and has not had it.
func (o *watchOptions) beginNodes(cmd, ctx context.Context, nodes []*watchedNode) error {
	var all []happening
	for _, n := range nodes {
		if n.owed && n.gone == "" {
			all = append(all, initially(&n.watched, n.path, n.known.content))
		}
	}
	return o.handleInitial(cmd, ctx, all)
}

// initially is CMD's initial event.
func initially(w *watched, p api.Path, generation api.Generation) happening {
	return happening{Event: api.Event{Kind: api.EventContentsModified, Path: p.String(), Generation: generation}, of: w, initial: true}
}

// handleInitial runs CMD for the initial state: for each node, or, with settling, once.
func (o *watchOptions) handleInitial(cmd, ctx context.Context, all []happening) error {
	n := 1
	if o.settle.quiet > 0 {
		n = max(1, len(all))
	}
	for batch := range slices.Chunk(all, n) {
		if err := o.handle(cmd, ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// pump puts a node's events into the backlog, until the last. gap is why the last session ended; nil in the
// first.
func (n *watchedNode) pump(ctx context.Context, b *backlog, kinds []api.EventKind, gap error) error {
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
			if err := b.put(ctx, happening{Event: explained(e), of: &n.watched}); err != nil {
				return err
			}
		}
		if e.Kind == api.EventHandleInvalid {
			return nil
		}
		var err error
		if e, err = n.next(ctx, kinds); err != nil {
			return err
		}
	}
}

// next waits for an event. Without one it looks once a lease: changes of an unreadable node cause no event.
func (n *watchedNode) next(ctx context.Context, kinds []api.EventKind) (api.Event, error) {
	for {
		e, quiet, err := n.within(ctx, api.DefaultLease)
		if quiet {
			now, failed := lookAt(ctx, n.handle, n.known.children != nil)
			if failed != nil {
				continue // Next knows why
			}
			before := n.known
			if !slices.ContainsFunc(kinds, func(kind api.EventKind) bool { return now.shows(kind, &before) }) {
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

// describeWatch says what is watched, and which events cannot come.
func (o *watchOptions) describeWatch(nodes []*watchedNode) string {
	var paths, remarks []string
	children := slices.ContainsFunc(o.kinds, api.EventKind.OfChild)
	for _, n := range nodes {
		paths = append(paths, n.path.String())
		it := "It"
		if len(nodes) > 1 {
			it = n.path.String()
		}
		switch {
		case n.stat.Kind == api.Directory && !children:
			remarks = append(remarks, it+" is a directory; --children tells of what is in it")
		case n.stat.Kind == api.File && children:
			remarks = append(remarks, it+" is a file, and has no children")
		}
	}
	text := fmt.Sprintf("watching %s for %s; end it with Ctrl-C", strings.Join(paths, ", "), strings.Join(kindNames(o.kinds), ", "))
	return strings.Join(append([]string{text}, remarks...), ". ")
}
