package recipe

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

const (
	// verify is how often a followed node is looked at without an event: a lease, as a session that is waited
	// for may have been dead that long.
	verify = api.DefaultLease
	// together is how long to wait for more events after one, so that one look covers them.
	together = 5 * time.Millisecond
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
// A look that fails with HandleClosed or NotFound (see hold.Gone) has met the end of the node: the next sight
// knows. The last item is an error: of ctx, of the session, or an answer such as PermissionDenied. Handles
// are closed when the loop ends, or goes on to another.
func follow(ctx context.Context, c *client.Client, path string, o client.OpenOptions) iter.Seq2[sight, error] {
	return func(yield func(sight, error) bool) {
		for more := true; more; {
			h, err := c.Open(ctx, path, o)
			switch {
			case err == nil:
				more = followOne(ctx, h, yield)
				hold.Leave(ctx, h)
				continue
			case errors.Is(err, api.NotFound), o.Create == client.Existing && errors.Is(err, api.Exists): // or it is being removed
				if !yield(sight{}, nil) {
					return
				}
				if err = appear(ctx, c, path); err == nil {
					continue
				}
			}
			yield(sight{}, hold.Ended(ctx, err, "follow", path))
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
				if found, err = look(s); hold.Gone(err) {
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
	select {
	case <-time.After(d):
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
			hold.Leave(ctx, h)
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

// listing are the options for a directory whose files, and their contents, matter.
func listing() client.OpenOptions {
	return client.OpenOptions{Read: true, Kind: api.Directory, Events: childEvents()}
}

func childEvents() []api.EventKind {
	return []api.EventKind{api.EventChildAdded, api.EventChildRemoved, api.EventChildModified}
}

// ChangeKind says what has happened to a node.
type ChangeKind uint8

const (
	// Created: the node existed when Watch began, or was created since. A node deleted and created again has
	// a greater Stat.Instance.
	Created ChangeKind = 1
	// Modified: the contents of the file have changed, or a child of the directory was added, removed or
	// changed.
	Modified ChangeKind = 2
	// Deleted: the node does not exist.
	Deleted ChangeKind = 3
	// Restarted: changes may have been missed, because another master serves or a slow loop lost events. The
	// Change is the present version, changed or not.
	Restarted ChangeKind = 4
)

// String returns the kind in one word.
func (k ChangeKind) String() string {
	if k < Created || k > Restarted {
		return "unknown"
	}
	return [...]string{"created", "modified", "deleted", "restarted"}[k-Created]
}

// Change is one whole version of a file or a directory.
type Change struct {
	Kind     ChangeKind
	Stat     api.Stat   // of the file (client.Handle.Stat), or of the directory when it was opened; zero if Deleted
	Contents []byte     // of a file; nil otherwise
	Children []api.Stat // by name (client.Handle.ReadDir)
}

// Watch ranges over the versions of a file or a directory: the present one at once, then each new one. It
// goes on after a deletion, waits until a file or directory of that name is created, and survives fail-overs.
// The last item is the final error: of ctx, of the session, or an answer such as PermissionDenied.
//
// Of several versions that come while the loop runs, Watch reports the newest, read after the event. So the
// last report is current unless an event is on its way. A change made while this program could not read the
// node causes no event: Watch sees it at most a lease later. Except for Restarted, it reports a file once for
// each generation of its contents.
//
// An ephemeral file is InvalidArgument, as Watch would keep it alive: watch its directory, or use
// WatchMembers. A version costs one call, or none from the cache. A session without a cache makes two more
// calls in each lease. While the node is absent, each child added to its directory costs one more.
func Watch(ctx context.Context, c *client.Client, path string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		var last Change
		o := client.OpenOptions{Read: true, Events: append(childEvents(), api.EventContentsModified)}
		for now, err := range looks(ctx, c, path, o, func(s sight) (Change, error) { return version(ctx, s, last) }) {
			if err != nil {
				yield(Change{}, hold.Ended(ctx, err, "watch", path))
				return
			}
			if now.same(last) {
				continue
			}
			last = now
			if !yield(now, nil) {
				return
			}
		}
	}
}

func version(ctx context.Context, s sight, last Change) (now Change, err error) {
	if s.Handle == nil {
		return Change{Kind: Deleted}, nil
	}
	now.Stat = last.Stat
	if len(s.events) == 0 { // else the last version was of the same handle
		if now.Stat, err = s.Stat(ctx); err != nil {
			return now, err
		}
	}
	if now.Stat.Ephemeral {
		return now, keepsAlive("watch", s.Path())
	}
	switch {
	case s.restarted():
		now.Kind = Restarted
	case now.Stat.Instance == last.Stat.Instance:
		now.Kind = Modified
	default:
		now.Kind = Created
	}
	if now.Stat.Kind == api.Directory {
		now.Children, err = s.ReadDir(ctx)
		return now, err
	}
	now.Contents, now.Stat, err = s.Contents(ctx)
	return now, err
}

// same reports whether a change adds nothing to the last.
func (c Change) same(last Change) bool {
	switch c.Kind {
	case Deleted:
		return last.Kind == Deleted
	case Modified:
		return c.Stat.Content == last.Stat.Content && slices.EqualFunc(c.Children, last.Children, func(a, b api.Stat) bool {
			return a.Path == b.Path && a.Instance == b.Instance && a.Content == b.Content
		})
	}
	return false
}
