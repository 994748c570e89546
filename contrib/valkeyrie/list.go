package chubbykv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/kvtools/valkeyrie/store"
)

// maxReads is how many keys a List reads at the same time.
const maxReads = 16

// List returns the keys below a directory, of all depths, with their values, sorted by key; the empty
// directory is that of all keys. The key of the directory itself is not among them. store.ErrKeyNotFound says
// that there are none, and that the directory is no key either. Each value is the newest at some moment
// during the call, not all of one moment.
func (s *Store) List(ctx context.Context, directory string, _ *store.ReadOptions) ([]*store.KVPair, error) {
	e, err := s.entryOf("list", directory)
	if err != nil {
		return nil, err
	}
	var pairs []*store.KVPair
	err = s.repeat(ctx, func(c *client.Client) error {
		below, err := s.walk(ctx, c, e)
		if err == nil {
			pairs, err = s.readAll(ctx, c, below.files)
		}
		if err != nil || len(pairs) > 0 {
			return err
		}
		return s.exists(ctx, c, e)
	})
	switch {
	case errors.Is(err, store.ErrKeyNotFound):
		return nil, store.ErrKeyNotFound
	case err != nil:
		return nil, fmt.Errorf("list the keys below %q: %w", e.key, err)
	}
	return pairs, nil
}

// exists returns store.ErrKeyNotFound if an entry has no value.
func (s *Store) exists(ctx context.Context, c *client.Client, e entry) error {
	if e.key == "" {
		return store.ErrKeyNotFound
	}
	now, err := s.read(ctx, c, e)
	if err == nil && !now.found {
		return store.ErrKeyNotFound
	}
	return err
}

// tree is what there is below an entry.
type tree struct {
	files []entry
	dirs  []string // their paths, each before those in it
}

// walk finds the keys below an entry.
func (s *Store) walk(ctx context.Context, c *client.Client, e entry) (tree, error) {
	var found tree
	var visit func(e entry) error
	visit = func(e entry) error {
		dir := s.directory(e)
		children, err := c.List(ctx, dir)
		if errors.Is(err, api.NotFound) {
			return nil // it was removed meanwhile
		}
		if err != nil {
			return err
		}
		if e.key != "" {
			found.dirs = append(found.dirs, dir)
		}
		for _, child := range children {
			name := child.Path.Base()
			part, ok := partOf(name, child.Kind)
			if !ok {
				continue
			}
			one := entry{key: join(e.key, part)}
			if child.Kind == api.File {
				one.value = join(e.below, name)
				found.files = append(found.files, one)
				continue
			}
			one.below = join(e.below, name)
			if err := visit(one); err != nil {
				return err
			}
		}
		return nil
	}
	err := visit(e)
	return found, err
}

// readAll reads keys, and returns those that there are, sorted.
func (s *Store) readAll(ctx context.Context, c *client.Client, all []entry) ([]*store.KVPair, error) {
	pairs := make([]*store.KVPair, len(all))
	faults := make([]error, len(all))
	places := make(chan struct{}, maxReads)
	var reads sync.WaitGroup
	for i, e := range all {
		places <- struct{}{}
		reads.Go(func() {
			defer func() { <-places }()
			now, err := s.read(ctx, c, e)
			if faults[i] = err; now.found {
				pairs[i] = now.pair(e)
			}
		})
	}
	reads.Wait()
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	pairs = slices.DeleteFunc(pairs, func(p *store.KVPair) bool { return p == nil })
	slices.SortFunc(pairs, byKey)
	return pairs, nil
}

func byKey(a, b *store.KVPair) int { return cmp.Compare(a.Key, b.Key) }

// DeleteTree deletes the keys below a directory, of all depths; the empty directory is that of all keys. The
// key of the directory itself stays. Up to api.MaxTxnSteps keys, which is 64, go at one moment; more in
// groups of so many, so that others see a part of it, and what was deleted stays so if the call fails later.
// What others create there meanwhile may stay. store.ErrKeyNotFound says that there was nothing to delete,
// and that the directory is no key either.
func (s *Store) DeleteTree(ctx context.Context, directory string) error {
	e, err := s.entryOf("delete", directory)
	if err != nil {
		return err
	}
	begun := false
	err = s.repeat(ctx, func(c *client.Client) error {
		below, err := s.walk(ctx, c, e)
		if err != nil {
			return err
		}
		if len(below.files) == 0 && !begun {
			if err := s.exists(ctx, c, e); err != nil {
				return err
			}
		}
		begun = true
		return s.removeTree(ctx, c, e, below)
	})
	switch {
	case errors.Is(err, store.ErrKeyNotFound):
		return store.ErrKeyNotFound
	case err != nil:
		return fmt.Errorf("delete the keys below %q: %w", e.key, err)
	}
	return nil
}

// removeTree removes what was found, and what has come in the place of it meanwhile.
func (s *Store) removeTree(ctx context.Context, c *client.Client, e entry, below tree) error {
	for round := 1; len(below.files) > 0; round++ {
		err := s.removeFiles(ctx, c, below.files)
		if err == nil {
			break
		}
		if !errors.Is(err, api.NotFound) || round == maxRounds {
			return err
		}
		if below, err = s.walk(ctx, c, e); err != nil { // somebody has deleted one of them
			return err
		}
	}
	for _, dir := range slices.Backward(below.dirs) {
		_, _ = c.Txn().Delete(dir).Commit(ctx) // it stays if it is not empty
	}
	if e.key != "" && len(below.dirs) > 0 {
		s.prune(ctx, c, path.Dir(s.directory(e)))
	}
	return nil
}

// removeFiles removes the files of keys, as many in one transaction as it may have.
func (s *Store) removeFiles(ctx context.Context, c *client.Client, all []entry) error {
	for group := range slices.Chunk(all, api.MaxTxnSteps) {
		t := c.Txn()
		for _, e := range group {
			t.Delete(s.file(e))
		}
		if _, err := t.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}
