package recipe

import (
	"context"
	"iter"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

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
				yield(Change{}, ended(ctx, err, "watch", path))
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
