package chubbykv

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/kvtools/valkeyrie/store"
)

// write is what a key is to become.
type write struct {
	value    []byte
	ttl      time.Duration        // of a key that this Store deletes; 0 without
	leased   bool                 // the key goes with the session
	atomic   bool                 // only if the key is what was read:
	previous api.Generation       // its generation; 0 if there was no such key
	fence    *sequencer.Sequencer // the lock that has to be held; nil without
}

func writeOf(value []byte, o *store.WriteOptions) write {
	w := write{value: value}
	if o != nil && o.TTL > 0 {
		w.leased = true
		if !o.KeepAlive {
			w.ttl = o.TTL
		}
	}
	return w
}

// Put writes a key, whatever was there. With a TTL the key goes with the session of this Store, and without
// KeepAlive when the TTL has passed: see the package comment. A value longer than MaxValue is TooLarge. If
// ctx ends before there is an answer, the error is Uncertain: the value may have been written. A session that
// is lost meanwhile has it written again in the next.
func (s *Store) Put(ctx context.Context, key string, value []byte, opts *store.WriteOptions) error {
	e, err := s.valueOf("put", key)
	if err != nil {
		return err
	}
	if _, err := s.put(ctx, e, writeOf(value, opts), s.repeat); err != nil {
		return fmt.Errorf("put key %q: %w", e.key, err)
	}
	return nil
}

// AtomicPut writes a key if it has the value that was read as previous; nil stands for no such key. It
// returns true and what the key is now. Otherwise nothing was written: store.ErrKeyModified says that the
// key has another value or none, store.ErrKeyExists that there is one. After an error with the code
// Uncertain or SessionExpired the key may have been written; get it, and compare. TTLs and limits are those
// of Put.
func (s *Store) AtomicPut(ctx context.Context, key string, value []byte, previous *store.KVPair, opts *store.WriteOptions) (bool, *store.KVPair, error) {
	e, err := s.valueOf("put", key)
	if err != nil {
		return false, nil, err
	}
	w := writeOf(value, opts)
	w.atomic = true
	if previous != nil {
		if w.previous = api.Generation(previous.LastIndex); w.previous == 0 {
			return false, nil, store.ErrKeyModified // no key has that index
		}
	}
	stat, err := s.put(ctx, e, w, s.keeper.Do)
	switch {
	case errors.Is(err, store.ErrKeyModified):
		return false, nil, store.ErrKeyModified
	case errors.Is(err, store.ErrKeyExists):
		return false, nil, store.ErrKeyExists
	case err != nil:
		return false, nil, fmt.Errorf("put key %q: %w", e.key, err)
	}
	return true, current{record: record{value: value}, at: stat.Content}.pair(e), nil
}

// put makes a write in sessions that do gives, and has the TTL counted.
func (s *Store) put(ctx context.Context, e entry, w write, do func(context.Context, func(*client.Client) error) error) (stat api.Stat, err error) {
	if len(w.value) > MaxValue {
		return stat, &api.Error{Code: api.TooLarge, Op: "put", Path: s.file(e),
			Message: fmt.Sprintf("the value has %d bytes; at most %d are allowed, so store a pointer to where the data is", len(w.value), MaxValue)}
	}
	if w.ttl > 0 {
		if err := s.mayExpire(e); err != nil {
			return stat, err
		}
	}
	err = do(ctx, func(c *client.Client) (err error) {
		stat, err = s.putOnce(ctx, c, e, w)
		return err
	})
	if err == nil && w.ttl > 0 {
		s.expire(e, stat.Content, w.ttl)
	}
	return stat, err
}

// putOnce makes a write in one session.
func (s *Store) putOnce(ctx context.Context, c *client.Client, e entry, w write) (api.Stat, error) {
	file := s.file(e)
	for range maxRounds {
		t := c.Txn()
		r := record{value: w.value}
		var own *lease
		if w.leased {
			var err error
			if own, err = s.leaseOf(ctx, c); err != nil {
				return api.Stat{}, err
			}
			r.lease = own.name
			t.If(s.leaseFile(own.name), client.IfExists())
		}
		if w.fence != nil {
			t.If(file, client.IfSequencer(*w.fence))
		}
		var on []client.WriteOption
		if w.atomic {
			now, err := s.read(ctx, c, e)
			if err == nil {
				err = now.compare(w.previous)
			}
			if err != nil {
				return api.Stat{}, err
			}
			s.ifAlive(t, now)
			on = append(on, client.IfGeneration(now.at))
		}
		stats, err := t.Put(file, r.encode(), on...).Commit(ctx)
		switch {
		case err == nil:
			return stats[0], nil
		case errors.Is(err, api.NotFound): // the directory, which somebody may remove again
			if err := c.MkdirAll(ctx, path.Dir(file)); err != nil {
				return api.Stat{}, err
			}
		case !errors.Is(err, api.GenerationMismatch): // else the key has been written or deleted, or a lease is gone
			return api.Stat{}, err
		case own != nil && pathOf(err) == s.leaseFile(own.name):
			s.drop(ctx, own)
		}
	}
	return api.Stat{}, errRounds("put", file)
}

// pathOf returns the path that an error is about.
func pathOf(err error) string {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Path
	}
	return ""
}

// compare returns why a key is not what was read before.
func (n current) compare(previous api.Generation) error {
	switch {
	case previous == 0 && n.found:
		return store.ErrKeyExists
	case n.at != previous:
		return store.ErrKeyModified
	}
	return nil
}

// ifAlive has a transaction depend on the lease of what was read.
func (s *Store) ifAlive(t *client.Txn, now current) {
	if now.lease != "" {
		t.If(s.leaseFile(now.lease), client.IfExists())
	}
}

// Delete deletes a key, and not those below it; store.ErrKeyNotFound says that there was none. If ctx ends
// before there is an answer, the error is Uncertain. A session that is lost meanwhile has it deleted in the next,
// but not if somebody has created it anew since.
func (s *Store) Delete(ctx context.Context, key string) error {
	e, err := s.valueOf("delete", key)
	if err != nil {
		return err
	}
	var sent api.Generation
	err = s.repeat(ctx, func(c *client.Client) error { return s.remove(ctx, c, e, nil, &sent) })
	switch {
	case errors.Is(err, store.ErrKeyNotFound):
		return store.ErrKeyNotFound
	case err != nil:
		return fmt.Errorf("delete key %q: %w", e.key, err)
	}
	return nil
}

// AtomicDelete deletes a key if it has the value that was read as previous, and returns true. Otherwise
// nothing was deleted: store.ErrKeyModified says that the key has another value, store.ErrKeyNotFound that it
// has none, store.ErrPreviousNotSpecified that previous is nil. After an error with the code Uncertain or
// SessionExpired the key may have been deleted.
func (s *Store) AtomicDelete(ctx context.Context, key string, previous *store.KVPair) (bool, error) {
	if previous == nil {
		return false, store.ErrPreviousNotSpecified
	}
	e, err := s.valueOf("delete", key)
	if err != nil {
		return false, err
	}
	err = s.keeper.Do(ctx, func(c *client.Client) error { return s.remove(ctx, c, e, previous, new(api.Generation)) })
	switch {
	case errors.Is(err, store.ErrKeyNotFound):
		return false, store.ErrKeyNotFound
	case errors.Is(err, store.ErrKeyModified):
		return false, store.ErrKeyModified
	case err != nil:
		return false, fmt.Errorf("delete key %q: %w", e.key, err)
	}
	return true, nil
}

// remove deletes the file of a key, if it is at previous, unless that is nil; and the directories that are
// empty then. sent is the instance of the file that an earlier call may have deleted, in a session that was lost; 0 if
// there was none. Then another instance has been created since, and stays.
func (s *Store) remove(ctx context.Context, c *client.Client, e entry, previous *store.KVPair, sent *api.Generation) error {
	file := s.file(e)
	for range maxRounds {
		now, err := s.read(ctx, c, e)
		switch {
		case err != nil:
			return err
		case *sent != 0 && *sent != now.instance:
			return nil
		case !now.found:
			return store.ErrKeyNotFound
		case previous != nil && uint64(now.at) != previous.LastIndex:
			return store.ErrKeyModified
		}
		*sent = now.instance
		t := c.Txn()
		s.ifAlive(t, now)
		_, err = t.Delete(file, client.IfGeneration(now.at)).Commit(ctx)
		switch {
		case err == nil:
			s.prune(ctx, c, path.Dir(file))
			return nil
		case !errors.Is(err, api.GenerationMismatch) && !errors.Is(err, api.NotFound): // else it has been written or deleted
			return err
		}
		*sent = 0
	}
	return errRounds("delete", file)
}

// prune removes a directory of keys, and those above it, as far as they are empty. What stays is not listed.
func (s *Store) prune(ctx context.Context, c *client.Client, dir string) {
	for ; dir != s.data(); dir = path.Dir(dir) {
		if _, err := c.Txn().Delete(dir).Commit(ctx); err != nil && !errors.Is(err, api.NotFound) {
			return
		}
	}
}
