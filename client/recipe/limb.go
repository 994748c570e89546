package recipe

import (
	"context"
	"errors"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// mostReads limits how many nodes a Tree opens at a time: a part of the requests a session may have pending.
const mostReads = 16

// limb is a followed directory of a Tree. Everything below it is stopped, and waited for, before it is
// removed or replaced: so no goroutine writes old nodes into the tree.
type limb struct {
	t    *Tree
	c    *client.Client
	fail context.CancelCauseFunc // ends the session's limbs
	path string
	stat api.Stat // from its parent; zero of the root
	at   *twig
	stop context.CancelFunc
	done chan struct{} // closed when it has ended

	limbs map[string]*limb // below it; only its goroutine uses them
}

// newLimb returns a limb without a look. Without a node it is the root.
func newLimb(t *Tree, c *client.Client, fail context.CancelCauseFunc, path string, at *twig) *limb {
	l := &limb{t: t, c: c, fail: fail, path: path, at: at, stop: func() {}, done: make(chan struct{}), limbs: map[string]*limb{}}
	l.heard()
	return l
}

func (t *Tree) follow(ctx context.Context, c *client.Client) error {
	within, fail := context.WithCancelCause(ctx)
	l := newLimb(t, c, fail, t.path, nil)
	t.enter(c)
	defer t.enter(nil)
	defer l.forget()
	defer l.prune()
	defer fail(nil)
	for s, err := range follow(within, c, t.path, listing()) {
		switch {
		case err != nil:
		case s.Handle == nil:
			l.heard()
			l.prune()
			t.retain(t.top, nil)
			l.settled()
		default:
			err = l.look(within, s)
		}
		if err != nil && !hold.Gone(err) {
			fail(err)
		}
		if within.Err() != nil { // perhaps a limb ended it
			return context.Cause(within)
		}
	}
	return context.Cause(within)
}

// run follows a directory other than the root, until it is gone, as its parent's events also say.
func (l *limb) run(ctx context.Context) {
	defer close(l.done)
	defer l.prune()
	for {
		err := l.once(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil: // the handle has ended; the directory may still exist
			l.heard()
		case errors.Is(err, api.PermissionDenied):
			l.denied(ctx, err)
		case hold.Unusable(err):
			return
		default:
			l.fail(err)
			return
		}
	}
}

func (l *limb) once(ctx context.Context) error {
	select {
	case l.t.reads <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	h, err := l.c.Open(ctx, l.path, listing())
	<-l.t.reads
	if err != nil {
		return err
	}
	defer hold.Leave(ctx, h)
	stat, err := h.Stat(ctx)
	if err == nil && stat.Instance != l.stat.Instance {
		err = api.Errorf(api.NotFound, "the directory was deleted and made again")
	}
	if err != nil {
		return err
	}
	followOne(ctx, h, func(s sight, failed error) bool {
		if err = failed; err == nil {
			err = l.look(ctx, s)
		}
		if hold.Gone(err) {
			err = nil // the next sight knows
		}
		return err == nil
	})
	return err
}

// denied records that the directory may not be read, and waits until the next attempt.
func (l *limb) denied(ctx context.Context, err error) {
	l.prune()
	l.note(err) // before it goes, so that no reader takes it for deleted
	l.t.retain(l.at, nil)
	l.settled()
	wait(ctx, verify)
}

// note records whether the directory could be read.
func (l *limb) note(err error) {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	node := l.at.node
	if node.Err = err; !l.at.node.equal(node) {
		l.at.node = node
		l.t.broadcast()
	}
}

// look makes the tree match the directory. An error of hold.Gone announces an event. A look that is due has no
// event.
func (l *limb) look(ctx context.Context, s sight) error {
	if !s.due {
		l.heard()
	}
	stat, err := s.Stat(ctx)
	switch {
	case err != nil:
		return err
	case stat.Ephemeral:
		return keepsAlive("watch", l.path)
	case stat.Children >= l.t.o.MaxNodes: // so that no longer list is requested
		return l.t.bounds(stat.Children+1, 0)
	}
	list, err := s.ReadDir(ctx)
	if err != nil {
		return err
	}
	if l.stat.Instance == 0 {
		if l.at != nil && l.at.node.Stat.Instance != stat.Instance {
			l.prune()
		}
		if l.at, err = l.t.set(l.t.top, ".", TreeNode{Stat: stat}); err != nil {
			return err
		}
	} else {
		l.note(nil)
	}
	l.cut(list)
	if err := l.grow(ctx, list); err != nil {
		return err
	}
	l.settled()
	return nil
}

// cut removes nodes that are not on the list.
func (l *limb) cut(list []api.Stat) {
	there := map[string]api.Stat{}
	for _, stat := range list {
		there[stat.Path.Base()] = stat
	}
	var over []*limb // a recreated node has other ACL generations, too
	for name, below := range l.limbs {
		//mutant: if stat := there[name]; stat.Kind != api.Directory { //by TestTree of ./client/recipe
		if stat := there[name]; stat.Kind != api.Directory || stat.ACLs != below.stat.ACLs {
			over = append(over, below)
			delete(l.limbs, name)
		}
	}
	endLimbs(over)
	l.t.retain(l.at, func(name string, node TreeNode) bool {
		stat, ok := there[name]
		return ok && stat.Kind == node.Stat.Kind
	})
}

// grow adds nodes of the list that are absent or in another version.
func (l *limb) grow(ctx context.Context, list []api.Stat) error {
	var all sync.WaitGroup
	defer all.Wait()
	var mu sync.Mutex // guards first
	var first error
	for _, stat := range list {
		name := stat.Path.Base()
		if stat.Kind == api.Directory {
			if err := l.branch(ctx, name, stat); err != nil {
				return err
			}
			continue
		}
		if l.has(name, stat) {
			continue
		}
		select {
		case l.t.reads <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		all.Go(func() {
			defer func() { <-l.t.reads }()
			if err := l.read(ctx, name, stat); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil || hold.Gone(first) {
					first = err
				}
			}
		})
	}
	all.Wait()
	return first
}

func (l *limb) branch(ctx context.Context, name string, stat api.Stat) error {
	node := TreeNode{Stat: stat}
	if stat.Ephemeral {
		node.Err = keepsAlive("watch", l.path+"/"+name)
		_, err := l.t.set(l.at, name, node)
		return err
	}
	if l.limbs[name] != nil {
		return nil
	}
	at, err := l.t.set(l.at, name, node)
	if err != nil {
		return err
	}
	below := newLimb(l.t, l.c, l.fail, l.path+"/"+name, at)
	below.stat = stat
	ctx, below.stop = context.WithCancel(ctx)
	l.limbs[name] = below
	go below.run(ctx)
	return nil
}

func (l *limb) has(name string, stat api.Stat) bool {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	at := l.at.below[name]
	if at == nil || at.node.Err != nil {
		return false
	}
	is := at.node.Stat
	return is.Content == stat.Content && is.ACLs == stat.ACLs // greater after a recreation
}

func (l *limb) read(ctx context.Context, name string, stat api.Stat) error {
	text, is, err := l.c.Get(ctx, l.path+"/"+name)
	switch {
	case err == nil:
		_, err = l.t.set(l.at, name, TreeNode{Stat: is, Contents: text})
	case errors.Is(err, api.PermissionDenied):
		_, err = l.t.set(l.at, name, TreeNode{Stat: stat, Err: err})
	case hold.Unusable(err): // gone since it was listed, or replaced; an event follows
		l.t.retain(l.at, func(other string, _ TreeNode) bool { return other != name })
		err = nil
	}
	return err
}

func (l *limb) heard() {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	l.t.behind[l] = true
}

func (l *limb) settled() {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	if !l.t.behind[l] {
		return
	}
	if delete(l.t.behind, l); len(l.t.behind) > 0 {
		return
	}
	l.t.err = nil
	if !l.t.loaded {
		l.t.loaded = true
		close(l.t.ready)
	}
	l.t.broadcast()
}

// forget drops a limb that nothing follows any more.
func (l *limb) forget() {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	delete(l.t.behind, l)
}

func (l *limb) prune() {
	var all []*limb
	for name, below := range l.limbs {
		all = append(all, below)
		delete(l.limbs, name)
	}
	endLimbs(all)
}

// endLimbs ends limbs, and returns when they no longer write.
func endLimbs(all []*limb) {
	for _, l := range all {
		l.stop()
	}
	for _, l := range all {
		<-l.done
		l.forget()
	}
}
