package recipe

import (
	"context"
	"iter"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// ChangeKind is what has happened to a node.
type ChangeKind uint8

const (
	// Created: there is the node. It was there when Watch began, or was created since; or
	// one was deleted and another created, whose Stat.Instance is greater.
	Created ChangeKind = 1
	// Modified: the contents of the file have changed; or a child of the directory was
	// added or removed, or its contents have changed.
	Modified ChangeKind = 2
	// Deleted: there is no such node, or none any more.
	Deleted ChangeKind = 3
	// Restarted: changes may have been missed, because another master serves, or because
	// the loop took so long that events were dropped. The Change is what there is now,
	// whether it is another than before or not.
	Restarted ChangeKind = 4
)

// String returns the kind in one word.
func (k ChangeKind) String() string {
	switch k {
	case Created:
		return "created"
	case Modified:
		return "modified"
	case Deleted:
		return "deleted"
	case Restarted:
		return "restarted"
	}
	return "unknown"
}

// Change is one version of a file or a directory, whole.
type Change struct {
	Kind     ChangeKind
	Stat     api.Stat   // of the file (see client.Handle.Stat), or of the directory when it was opened; zero if Deleted
	Contents []byte     // of a file; nil otherwise
	Children []api.Stat // of a directory, by name (see client.Handle.ReadDir)
}

// Watch ranges over the versions of a file or a directory: over the present one at once, and
// over another whenever there is one. It goes on when the node is deleted, waits until
// one of that name is created, a file or a directory, and goes on through fail-overs of the
// master. What comes last is the error that ended it: of ctx, of the session, or an answer such as
// PermissionDenied.
//
// Not every version is told: of several that come while the loop runs, the newest is. Each
// is read after the event that tells of it, so that the last one told is what there is, unless
// an event is on its way, or it came while this program might not read the node, of which no event
// tells: that is seen at most a lease later; and a file is told once for each generation of its contents
// (Restarted excepted).
//
// An ephemeral file is InvalidArgument: Watch has the node open, and would keep the file
// from going; watch its directory, or use WatchMembers. Each version costs one call, and
// what the cache of the session holds costs none; in a session without a cache
// one look in a lease costs two besides. While there is no such node, each child
// that is added to its directory costs one more.
func Watch(ctx context.Context, c *client.Client, path string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		var last Change
		kinds := append(childEvents(), api.EventContentsModified)
		for s, err := range follow(ctx, c, path, client.OpenOptions{Read: true, Events: kinds}) {
			now := Change{Kind: Deleted}
			if err == nil && s.Handle != nil {
				now, err = version(ctx, s, last)
			}
			switch {
			case gone(err): // the next sight knows
				continue
			case err != nil:
				yield(Change{}, ended(ctx, err, "watch", path))
				return
			case now.same(last):
				continue
			}
			last = now
			if !yield(now, nil) {
				return
			}
		}
	}
}

// version looks at a node that is there.
func version(ctx context.Context, s sight, last Change) (now Change, err error) {
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

// same reports whether a change tells nothing that the last one did not.
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
