package chubbykv

import (
	"context"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/kvtools/valkeyrie/store"
)

// Watch returns a channel that gets the value of a key at once, and again when it has changed, until ctx ends,
// the Store is closed, or the key may not be read any more: then it is closed. A deletion is a pair without
// a value (nil) and with LastIndex 0; the key is waited for. Of several changes that come while the caller
// does not receive, the newest is told; so the last that is told is what there is. It goes on through
// fail-overs and the loss of sessions. store.ErrKeyNotFound says that there is no such key to begin with.
func (s *Store) Watch(ctx context.Context, key string, _ *store.ReadOptions) (<-chan *store.KVPair, error) {
	e, err := s.valueOf("watch", key)
	if err != nil {
		return nil, err
	}
	now, err := s.get(ctx, e)
	if err != nil {
		return nil, err
	}
	if !now.found {
		return nil, store.ErrKeyNotFound
	}
	out := make(chan *store.KVPair)
	err = s.follow(ctx, []string{s.file(e), s.leases()}, func(ctx context.Context, changed <-chan struct{}) {
		defer close(out)
		for {
			pair := &store.KVPair{Key: e.key}
			if now.found {
				pair = now.pair(e)
			}
			select {
			case out <- pair:
			case <-ctx.Done():
				return
			}
			for at := now.at; now.at == at; {
				select {
				case <-changed:
				case <-ctx.Done():
					return
				}
				if now, err = s.get(ctx, e); err != nil {
					return
				}
			}
		}
	})
	return out, err
}

// follow begins a task that is told when one of some nodes may have changed, also once after it has begun. Its
// context ends with ctx, with the Store, and when one of them may not be followed any more.
func (s *Store) follow(ctx context.Context, paths []string, task func(ctx context.Context, changed <-chan struct{})) error {
	return s.start(func(life context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer context.AfterFunc(life, cancel)()
		changed := make(chan struct{}, 1)
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		for _, path := range paths {
			all.Go(func() {
				defer cancel()
				_ = s.keeper.Renew(ctx, func(ctx context.Context, c *client.Client) error { // the channel that is closed tells
					for _, err := range recipe.Watch(ctx, c, path) {
						if err != nil {
							return err
						}
						notify(changed)
					}
					return nil
				})
			})
		}
		task(ctx, changed)
	})
}

// notify says that something has changed, unless that is still to be heard.
func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// WatchTree returns a channel that gets the keys below a directory, as List returns them, at once, and all of
// them again when one was written, created or deleted, until ctx ends or the Store is closed: then it is
// closed. A directory without keys is waited for, beginning with an empty list. Of several changes that come
// together, or while the caller does not receive, the newest list is told. It goes on through fail-overs and
// the loss of sessions. More than recipe.DefaultTreeNodes keys and directories, or recipe.DefaultTreeBytes of
// values, are TooLarge; if that many come later, the channel tells nothing until there are less.
func (s *Store) WatchTree(ctx context.Context, directory string, _ *store.ReadOptions) (<-chan []*store.KVPair, error) {
	e, err := s.entryOf("watch", directory)
	if err != nil {
		return nil, err
	}
	tree, err := recipe.WatchTree(ctx, s.keeper, s.directory(e), recipe.TreeOptions{})
	if err != nil {
		return nil, err
	}
	out := make(chan []*store.KVPair)
	err = s.follow(ctx, []string{s.leases()}, func(ctx context.Context, leases <-chan struct{}) {
		defer tree.Close()
		defer close(out)
		var last []*store.KVPair
		for first := true; ; first = false {
			changed := tree.Changed() // before looking
			pairs, err := s.pairsOf(ctx, e, tree)
			if err != nil {
				return
			}
			if first || !slices.EqualFunc(pairs, last, func(a, b *store.KVPair) bool { return a.Key == b.Key && a.LastIndex == b.LastIndex }) {
				select {
				case out <- pairs:
				case <-ctx.Done():
					return
				}
				last = pairs
			}
			select {
			case <-changed:
			case <-leases:
			case <-ctx.Done():
				return
			}
		}
	})
	if err != nil {
		tree.Close()
		return nil, err
	}
	return out, nil
}

// pairsOf returns the keys in a tree. If the lease of one seems to be gone, it asks the cell.
func (s *Store) pairsOf(ctx context.Context, e entry, t *recipe.Tree) (pairs []*store.KVPair, err error) {
	err = s.repeat(ctx, func(c *client.Client) error {
		pairs = []*store.KVPair{}
		for name, node := range t.All() {
			key, ok := keyOf(name)
			if !ok || node.Stat.Kind != api.File || node.Err != nil {
				continue
			}
			one := entry{key: join(e.key, key), value: join(e.below, name)}
			now := current{found: true, at: node.Stat.Content}
			var err error
			if now.record, err = decode(node.Contents, node.Stat.Path.String()); err != nil {
				return err
			}
			if now.lease != "" {
				if now, err = s.read(ctx, c, one); err != nil {
					return err
				}
			}
			if now.found {
				pairs = append(pairs, now.pair(one))
			}
		}
		slices.SortFunc(pairs, byKey)
		return nil
	})
	return pairs, err
}
