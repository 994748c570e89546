package main

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

// watchedTree is a directory with its subtree. A recipe.Tree has the state, across sessions; events are the
// differences from the known state.
type watchedTree struct {
	path  api.Path
	kinds []api.EventKind
	tree  *recipe.Tree
	known map[string]*leaf // by their names below it

	pending []happening // known, and not in the backlog yet: the rest of an ended session comes first in the next
}

// leaf is a node of a tree, as reported.
type leaf struct {
	watched
	stat   api.Stat
	unread bool // it was unreadable so far
	hidden bool // a directory above it is unreadable, or not read since: its absence does not mean removal
}

func (o *watchOptions) watchTrees(ctx context.Context) error {
	var trees []*watchedTree
	defer func() {
		for _, t := range trees {
			t.tree.Close()
		}
	}()
	f := &follower{}
	f.begin = func(ctx context.Context, _ *client.Client) error {
		for _, p := range o.paths[len(trees):] { // they continue in the next session by themselves
			tree, err := recipe.WatchTree(ctx, f.sessions, p.String(), recipe.TreeOptions{})
			if err != nil {
				return err
			}
			trees = append(trees, &watchedTree{path: p, kinds: o.kinds, tree: tree, known: map[string]*leaf{}})
		}
		return nil
	}
	f.follow = func(within context.Context, _ *client.Client, gap error) error {
		return o.followTrees(ctx, within, trees, gap)
	}
	return o.withFollowing(ctx, o.paths[0], f)
}

// followTrees reports changes during a session.
func (o *watchOptions) followTrees(cmd, ctx context.Context, trees []*watchedTree, gap error) error {
	if gap == nil {
		var paths []string
		var all []happening
		for _, t := range trees {
			t.changes() // the initial state
			paths = append(paths, t.path.String())
			all = append(all, t.files()...)
		}
		o.notice(o.err, fmt.Sprintf("watching everything below %s for %s; end it with Ctrl-C", strings.Join(paths, ", "), strings.Join(kindNames(o.kinds), ", ")))
		if o.initial {
			if err := o.handleInitial(cmd, ctx, all); err != nil {
				return err
			}
		}
	}
	var pumps []func(context.Context) error
	for _, t := range trees {
		pumps = append(pumps, func(ctx context.Context) error { return t.pump(ctx, o.backlog) })
	}
	return o.consume(cmd, ctx, pumps...)
}

// pump puts changes, and the end, into the backlog.
func (t *watchedTree) pump(ctx context.Context, b *backlog) error {
	for {
		for ; len(t.pending) > 0; t.pending = t.pending[1:] {
			if err := b.put(ctx, t.pending[0]); err != nil {
				return err
			}
		}
		changed := t.tree.Changed()
		t.pending = slices.DeleteFunc(t.changes(), func(h happening) bool { return !slices.Contains(t.kinds, h.Kind) })
		if len(t.pending) > 0 {
			continue
		}
		if err := t.tree.Err(); err != nil {
			return b.put(ctx, happening{end: err})
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// changes compares the tree with the known state, and updates that. The contents of an unreadable directory
// stay known.
func (t *watchedTree) changes() (all []happening) {
	there := map[string]bool{}
	changed := t.tree.Changed()
	var closed []string // unreadable directories
	for name, node := range t.tree.All() {
		there[name] = true
		stat, was := node.Stat, t.known[name]
		shut := node.Err != nil || stat.Instance == 0 // a list has no generations of unreadable nodes
		other := was != nil && was.stat.Kind != stat.Kind
		isNew := was == nil || other || was.stat.Instance != stat.Instance && was.stat.Instance != 0 && stat.Instance != 0
		if !isNew && shut {
			closed = append(closed, name+"/")
			continue
		}
		if other {
			all = append(all, t.childEvent(was, api.EventChildRemoved, name, was.stat.Instance))
		}
		if isNew {
			was = t.newLeaf(name, stat.Instance)
			t.known[name] = was
			all = append(all, t.childEvent(was, api.EventChildAdded, name, stat.Instance))
		}
		if stat.Kind == api.File && (isNew || was.stat.Content != stat.Content || was.unread) {
			all = append(all, happening{Event: api.Event{Kind: api.EventContentsModified, Path: t.pathOf(name), Generation: stat.Content}, of: &was.watched})
		}
		was.stat, was.unread, was.hidden = stat, shut, false
	}
	whole := t.tree.Fresh() && !isClosed(changed)                             // then it was so above
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(t.known))) { // children before their directory
		was := t.known[name]
		if there[name] {
			continue
		}
		if slices.ContainsFunc(closed, func(dir string) bool { return strings.HasPrefix(name, dir) }) {
			was.hidden = true
			continue
		}
		if was.hidden && !whole {
			continue
		}
		delete(t.known, name)
		all = append(all, t.childEvent(was, api.EventChildRemoved, name, was.stat.Instance))
	}
	return all
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// files are CMD's initial events.
func (t *watchedTree) files() (all []happening) {
	for _, name := range slices.Sorted(maps.Keys(t.known)) {
		if l := t.known[name]; l.stat.Kind == api.File {
			all = append(all, initially(&l.watched, l.stat.Path, l.stat.Content))
		}
	}
	return all
}

func (t *watchedTree) pathOf(name string) string { return path.Join(t.path.String(), name) }

func (t *watchedTree) childEvent(l *leaf, kind api.EventKind, name string, instance api.Generation) happening {
	dir, child := path.Split(t.pathOf(name))
	return happening{Event: api.Event{Kind: kind, Path: path.Clean(dir), Child: child, Generation: instance}, of: &l.watched}
}

// newLeaf returns a node without reports. It has the contents of that instance only, if known: the next leaf
// reports the next instance's.
func (t *watchedTree) newLeaf(name string, instance api.Generation) *leaf {
	l := &leaf{}
	l.contents = func(context.Context) (*watchedContents, error) {
		node, there := t.tree.Get(name)
		switch {
		case !there, instance != 0 && node.Stat.Instance != 0 && node.Stat.Instance != instance:
			return nil, api.Errorf(api.NotFound, "there are no contents any more")
		case node.Stat.Kind == api.Directory: // also an ephemeral one, which has an Err
			return nil, api.Errorf(api.IsDirectory, "a directory has no contents")
		case node.Err != nil:
			return nil, node.Err
		}
		return newWatchedContents(node.Contents, node.Stat), nil
	}
	return l
}
