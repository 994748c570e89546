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

// watchable is what is watched, in one session after another: a node, or a tree.
type watchable interface {
	begin(ctx context.Context, c *client.Client) error
	// owes returns the initial state that CMD has yet to get.
	owes() []happening
	// pump puts events into the backlog, until the last, or the end of the session. gap is why the one before ended.
	pump(ctx context.Context, gap error) error
	about() (p api.Path, remark string)
	end()
}

// runWatch follows nodes or trees. --timeout is for opening them.
func (o *watchOptions) runWatch(ctx context.Context) error {
	f := &follower{}
	var all []watchable
	for _, p := range o.paths {
		if o.tree {
			all = append(all, &watchedTree{o: o, path: p, follower: f, known: map[string]*leaf{}})
		} else {
			all = append(all, &watchedNode{o: o, path: p})
		}
	}
	f.begin = func(ctx context.Context, c *client.Client) error {
		for _, w := range all {
			if err := w.begin(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
	f.follow = func(within context.Context, _ *client.Client, gap error) error {
		if gap == nil {
			o.notice(o.err, o.describeWatch(all))
		}
		var initial []happening
		var pumps []func(context.Context) error
		for _, w := range all {
			initial = append(initial, w.owes()...)
			pumps = append(pumps, func(ctx context.Context) error { return w.pump(ctx, gap) })
		}
		n := 1
		if o.settle.quiet > 0 {
			n = max(1, len(initial))
		}
		for batch := range slices.Chunk(initial, n) {
			if err := o.handle(ctx, within, batch); err != nil {
				return err
			}
		}
		return o.consume(ctx, within, pumps...)
	}
	defer func() {
		for _, w := range all {
			w.end()
		}
	}()
	return o.withFollowing(ctx, o.paths[0], f)
}

// describeWatch says what is watched, and which events cannot come.
func (o *watchOptions) describeWatch(all []watchable) string {
	what := "watching "
	if o.tree {
		what += "everything below "
	}
	var paths, remarks []string
	for _, w := range all {
		p, remark := w.about()
		paths = append(paths, p.String())
		it := "It"
		if len(all) > 1 {
			it = p.String()
		}
		if remark != "" {
			remarks = append(remarks, it+" "+remark)
		}
	}
	text := fmt.Sprintf("%s%s for %s; end it with Ctrl-C", what, strings.Join(paths, ", "), strings.Join(kindNames(o.kinds), ", "))
	return strings.Join(append([]string{text}, remarks...), ". ")
}

// watchedTree is a directory with its subtree. A recipe.Tree has the state, across sessions; events are the
// differences from the known state.
type watchedTree struct {
	o        *watchOptions
	path     api.Path
	follower *follower
	tree     *recipe.Tree
	known    map[string]*leaf // by their names below it

	pending []happening // known, and not in the backlog yet: the rest of an ended session comes first in the next
}

// leaf is a node of a tree, as reported.
type leaf struct {
	watched
	stat   api.Stat
	unread bool // it was unreadable so far
	hidden bool // a directory above it is unreadable, or not read since: its absence does not mean removal
}

// begin begins the tree, once: it goes on in the next session by itself.
func (t *watchedTree) begin(ctx context.Context, _ *client.Client) (err error) {
	if t.tree != nil {
		return nil
	}
	if t.tree, err = recipe.WatchTree(ctx, t.follower.sessions, t.path.String(), recipe.TreeOptions{}); err != nil {
		return err
	}
	t.changes() // the initial state
	for _, l := range t.known {
		l.owed = t.o.initial && l.stat.Kind == api.File
	}
	return nil
}

func (t *watchedTree) end() {
	if t.tree != nil {
		t.tree.Close()
	}
}

func (t *watchedTree) about() (p api.Path, remark string) { return t.path, "" }

// owes returns an initial event of each file of which CMD has yet to get one.
func (t *watchedTree) owes() (all []happening) {
	for _, name := range slices.Sorted(maps.Keys(t.known)) {
		if l := t.known[name]; l.owed {
			all = append(all, initially(&l.watched, l.stat.Path, l.stat.Content))
		}
	}
	return all
}

func (t *watchedTree) pump(ctx context.Context, _ error) error {
	for {
		for ; len(t.pending) > 0; t.pending = t.pending[1:] {
			if err := t.o.backlog.put(ctx, t.pending[0]); err != nil {
				return err
			}
		}
		changed := t.tree.Changed()
		t.pending = slices.DeleteFunc(t.changes(), func(h happening) bool { return !slices.Contains(t.o.kinds, h.Kind) })
		if len(t.pending) > 0 {
			continue
		}
		if err := t.tree.Err(); err != nil {
			return t.o.backlog.put(ctx, happening{end: err})
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
	whole := t.tree.Fresh() // then it was so above, unless
	select {
	case <-changed:
		whole = false
	default:
	}
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
