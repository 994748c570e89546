package chubbykv

import (
	"context"
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/kvtools/valkeyrie/store"
)

// The first byte of a key's file says what follows.
const (
	plainKind  = 'v' // the value
	leasedKind = 'l' // the name of the lease without which the value is none, and the value
)

// record is what the file of a key says.
type record struct {
	lease string // its name; empty for a value without a TTL
	value []byte
}

func (r record) encode() []byte {
	contents := make([]byte, 0, 1+len(r.lease)+len(r.value))
	if r.lease == "" {
		contents = append(contents, plainKind)
	} else {
		contents = append(append(contents, leasedKind), r.lease...)
	}
	return append(contents, r.value...)
}

func decode(contents []byte, file string) (record, error) {
	switch {
	case len(contents) > 0 && contents[0] == plainKind:
		return record{value: contents[1:]}, nil
	case len(contents) > leaseLength && contents[0] == leasedKind:
		return record{lease: string(contents[1 : 1+leaseLength]), value: contents[1+leaseLength:]}, nil
	}
	return record{}, &api.Error{Code: api.Corrupt, Op: "read", Path: file, Message: "the file of a key was not written by this version; did another program write it?"}
}

// current is the value of a key at one moment.
type current struct {
	record
	found    bool
	at       api.Generation // of the file
	instance api.Generation // of the file; 0 if none was found
}

// pair returns what the library is shown. The value is never nil, and the caller's own.
func (n current) pair(e entry) *store.KVPair {
	return &store.KVPair{Key: e.key, Value: append([]byte{}, n.value...), LastIndex: uint64(n.at)}
}

// read returns the value of a key. A value whose lease is gone counts as none, and its file is removed, if
// this program may do that.
func (s *Store) read(ctx context.Context, c *client.Client, e entry) (current, error) {
	file := s.file(e)
	for range maxRounds {
		contents, stat, err := c.Get(ctx, file)
		if errors.Is(err, api.NotFound) {
			return current{}, nil
		}
		if err != nil {
			return current{}, err
		}
		r, err := decode(contents, file)
		if err != nil {
			return current{}, err
		}
		if r.lease != "" {
			alive, err := s.alive(ctx, c, r.lease)
			if err != nil {
				return current{}, err
			}
			if !alive {
				gone, err := s.collect(ctx, c, file, r.lease, stat.Content)
				if gone || err != nil {
					return current{}, err
				}
				continue // somebody has written the key since
			}
		}
		return current{record: r, found: true, at: stat.Content, instance: stat.Instance}, nil
	}
	return current{}, errRounds("read", file)
}

// collect removes the file of a key whose lease is gone. It reports false if the file has changed: only
// if both hold at one moment there was no such key.
func (s *Store) collect(ctx context.Context, c *client.Client, file, lease string, at api.Generation) (gone bool, err error) {
	txn := func() *client.Txn { return c.Txn().If(s.leaseFile(lease), client.IfGeneration(0)) }
	_, err = txn().Delete(file, client.IfGeneration(at)).Commit(ctx)
	if errors.Is(err, api.PermissionDenied) || errors.Is(err, api.LockHeld) { // to see that it is gone is enough
		_, err = txn().If(file, client.IfGeneration(at)).Commit(ctx)
	}
	if errors.Is(err, api.GenerationMismatch) || errors.Is(err, api.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// Get returns a key with its value, which is the newest at some moment during the call, whatever the
// options say, and store.ErrKeyNotFound if there is none. What the session's cache has costs no call.
func (s *Store) Get(ctx context.Context, key string, _ *store.ReadOptions) (*store.KVPair, error) {
	e, err := s.valueOf("get", key)
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
	return now.pair(e), nil
}

// Exists reports whether a key has a value. A key that only has others below it has none.
func (s *Store) Exists(ctx context.Context, key string, _ *store.ReadOptions) (bool, error) {
	e, err := s.valueOf("look for", key)
	if err != nil {
		return false, err
	}
	now, err := s.get(ctx, e)
	return now.found, err
}

func (s *Store) get(ctx context.Context, e entry) (now current, err error) {
	err = s.repeat(ctx, func(c *client.Client) (err error) {
		now, err = s.read(ctx, c, e)
		return err
	})
	if err != nil {
		return current{}, fmt.Errorf("get key %q: %w", e.key, err)
	}
	return now, nil
}

// alive reports whether there is a lease.
func (s *Store) alive(ctx context.Context, c *client.Client, lease string) (bool, error) {
	list, err := c.List(ctx, s.leases()) // which is cached, and does not open the lease
	if err != nil && !errors.Is(err, api.NotFound) {
		return false, err
	}
	for _, one := range list {
		if one.Path.Base() == lease {
			return true, nil
		}
	}
	return false, nil
}
