package chubbyvault

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/hashicorp/vault/sdk/physical"
)

// MaxValue is the most bytes that the value of an entry may have: 32 files of the longest. Vault's own
// limit for other backends is 1 MiB or less. All of a cell is in the memory of its replicas.
const MaxValue = 32 * api.MaxContents

// Config is the configuration of a Backend.
type Config struct {
	// Client says how to reach the cell. Its Lease is that of the sessions: the longer it is, the
	// later an active node that fails is replaced.
	Client client.Config
	// Path is the directory that the backend has for itself, as in /ls/local/vault; it is created when it
	// is needed. All nodes of one Vault have the same, and nothing else may write below it.
	Path string
	// DisableHA says that there is one node only: HAEnabled reports false then.
	DisableHA bool
	// LockDelay is for how long nobody gets a lock when the session of its holder has failed (Chubby
	// §2.4): 0 to api.MaxLockDelay. Zero means zero, which is enough for what is written to this
	// backend: the cell refuses the writes of a former active node (RegisterActiveNodeLock).
	LockDelay time.Duration
}

// Backend keeps Vault's entries in a Chubby cell: it is a physical.Backend, and a
// physical.FencingHABackend. Its methods may be called from several goroutines. The caller should
// Close it when Vault has stopped.
type Backend struct {
	cfg    Config
	keeper *client.Keeper

	mu     sync.Mutex // guards what follows; no call is made while it is held
	fence  *fence     // nil until RegisterActiveNodeLock
	cursor string     // the id at which the next part of the sweep begins
}

// What the SDK asks for.
var (
	_ physical.Backend          = (*Backend)(nil)
	_ physical.FencingHABackend = (*Backend)(nil)
)

// New returns a Backend. It does not connect yet, and the only error is InvalidArgument. The Backend does
// not end with ctx.
func New(ctx context.Context, cfg Config) (*Backend, error) {
	var faults []error
	if p, err := api.ParsePath(cfg.Path); err != nil {
		faults = append(faults, err)
	} else if p.IsRoot() {
		faults = append(faults, api.Errorf(api.InvalidArgument, "Path is %s, the root of a cell; name a directory that is the backend's own", cfg.Path))
	}
	if cfg.LockDelay < 0 || cfg.LockDelay > api.MaxLockDelay {
		faults = append(faults, api.Errorf(api.InvalidArgument, "LockDelay is %v; want 0 to %v", cfg.LockDelay, api.MaxLockDelay))
	}
	keeper, err := client.Keep(ctx, cfg.Client)
	if err := errors.Join(append(faults, err)...); err != nil {
		if keeper != nil {
			_ = keeper.Close(ctx) // it has no session yet
		}
		return nil, fmt.Errorf("configure Vault's backend: %w", err)
	}
	return &Backend{cfg: cfg, keeper: keeper}, nil
}

// Close ends the session, which frees the backend's locks: by calling it, the caller says that the work
// under them has stopped. Later calls fail with Unavailable. Its time is that of client.Keeper.Close.
func (b *Backend) Close(ctx context.Context) error { return b.keeper.Close(ctx) }

// data, chunks and locks are the directories that a backend has.
func (b *Backend) data() string   { return b.cfg.Path + "/data" }
func (b *Backend) chunks() string { return b.cfg.Path + "/chunks" }
func (b *Backend) locks() string  { return b.cfg.Path + "/locks" }

// maxRounds is how often an operation begins again because others have changed the same entry
// meanwhile. In each round one of the others was done.
const maxRounds = 100

// errRounds is the error when maxRounds were not enough.
func errRounds(op, path string) error {
	return &api.Error{Code: api.Unavailable, Op: op, Path: path, Message: fmt.Sprintf("others changed the entry %d times meanwhile; try again later", maxRounds)}
}

// Get returns an entry, nil if there is none. What the session's cache has costs no call. A value in
// chunks is that of one moment, old or new.
func (b *Backend) Get(ctx context.Context, key string) (*physical.Entry, error) {
	file := fileOf(key)
	if room("get", b.data(), file) != nil {
		return nil, nil // nothing can be there
	}
	var entry *physical.Entry
	err := b.keeper.Do(ctx, func(c *client.Client) error {
		value, found, err := b.read(ctx, c, b.data()+"/"+file)
		if entry = nil; found {
			entry = &physical.Entry{Key: key, Value: value}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get the entry of key %q: %w", key, err)
	}
	return entry, nil
}

// Put writes an entry, whole or not at all: whoever reads meanwhile gets the value before or the new one.
// A value longer than MaxValue is TooLarge, with physical.ErrValueTooLarge in its text; a key whose path
// is too long is InvalidArgument, with physical.ErrKeyTooLarge. BadSequencer says that this node is not
// the active one any more, and that nothing was written. Uncertain, or SessionExpired, says that it may
// have been written.
func (b *Backend) Put(ctx context.Context, entry *physical.Entry) error {
	file := fileOf(entry.Key)
	if err := room("put", b.data(), file); err != nil {
		return err
	}
	if len(entry.Value) > MaxValue {
		return &api.Error{Code: api.TooLarge, Op: "put", Path: b.data() + "/" + file,
			Message: fmt.Sprintf("%s: it has %d bytes; at most %d are allowed", physical.ErrValueTooLarge, len(entry.Value), MaxValue)}
	}
	err := b.keeper.Do(ctx, func(c *client.Client) error {
		w, err := b.writer(ctx, c)
		if err != nil {
			return err
		}
		if len(entry.Value) <= maxInline {
			return b.replace(ctx, c, w, file, head{value: entry.Value})
		}
		return b.putChunked(ctx, c, w, entry.Key, entry.Value)
	})
	if err != nil {
		return fmt.Errorf("put the entry of key %q: %w", entry.Key, err)
	}
	return nil
}

// replace writes an entry's file, and then removes the chunks of the value before.
func (b *Backend) replace(ctx context.Context, c *client.Client, w writer, file string, next head) error {
	contents := next.encode()
	for range maxRounds {
		h, err := w.open(ctx, file, client.OpenOptions{Read: true, Write: true, Create: client.File, Contents: contents})
		if errors.Is(err, api.NotFound) { // the directory, which somebody may remove again
			if err := c.MkdirAll(ctx, path.Dir(b.data()+"/"+file)); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if h.Created() {
			_ = h.Close(ctx) // in the background, if there is no answer
			return nil
		}
		before, stat, err := h.Contents(ctx)
		if err == nil {
			_, err = h.SetContents(ctx, contents, append(w.conditions, client.IfGeneration(stat.Content))...)
		}
		_ = h.Close(ctx)
		switch {
		case errors.Is(err, api.GenerationMismatch), errors.Is(err, api.HandleClosed):
			continue // somebody has written or deleted it
		case err != nil:
			return err
		}
		b.discard(ctx, c, before)
		return nil
	}
	return errRounds("put", b.data()+"/"+file)
}

// Delete deletes an entry; nil also if there is none. The errors are those of Put.
func (b *Backend) Delete(ctx context.Context, key string) error {
	file := fileOf(key)
	if room("delete", b.data(), file) != nil {
		return nil // nothing can be there
	}
	err := b.keeper.Do(ctx, func(c *client.Client) error {
		w, err := b.writer(ctx, c)
		if err != nil {
			return err
		}
		return b.remove(ctx, c, w, file)
	})
	if err != nil {
		return fmt.Errorf("delete the entry of key %q: %w", key, err)
	}
	return nil
}

// remove deletes an entry's file, its chunks, and the directories that are empty then.
func (b *Backend) remove(ctx context.Context, c *client.Client, w writer, file string) error {
	for range maxRounds {
		h, err := w.open(ctx, file, client.OpenOptions{Read: true, Write: true, Kind: api.File})
		if errors.Is(err, api.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		before, _, err := h.Contents(ctx)
		if err == nil {
			err = h.Delete(ctx, w.conditions...)
		}
		_ = h.Close(ctx)
		if errors.Is(err, api.HandleClosed) {
			continue // somebody has deleted it, and perhaps created it again
		}
		if err != nil {
			return err
		}
		b.discard(ctx, c, before)
		for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
			if err := c.Delete(ctx, b.data()+"/"+dir); err != nil && !errors.Is(err, api.NotFound) {
				break // it is not empty; or it stays, and List does not show it
			}
		}
		return nil
	}
	return errRounds("delete", b.data()+"/"+file)
}

// List returns the keys that begin with prefix, without it, sorted: of those with a slash after it, what
// is before that and the slash, once. An entry that is there throughout is listed.
func (b *Backend) List(ctx context.Context, prefix string) ([]string, error) {
	slash := strings.LastIndexByte(prefix, '/') + 1
	dir, begin := b.data(), prefix[slash:]
	if slash > 0 {
		dir += "/" + directoryOf(prefix[:slash])
		if room("list", b.data(), directoryOf(prefix[:slash])) != nil {
			return nil, nil // nothing can be there
		}
	}
	var keys []string
	err := b.keeper.Do(ctx, func(c *client.Client) (err error) {
		keys, err = list(ctx, c, dir, begin)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the keys of prefix %q: %w", prefix, err)
	}
	return keys, nil
}

// maxLooks is how many directories a List looks into at the same time.
const maxLooks = 16

// list lists the keys of a directory that begin with begin, without it.
func list(ctx context.Context, c *client.Client, dir, begin string) ([]string, error) {
	children, err := children(ctx, c, dir)
	if err != nil {
		return nil, err
	}
	found := make([]string, len(children))
	faults := make([]error, len(children))
	places := make(chan struct{}, maxLooks)
	var all sync.WaitGroup
	for i, child := range children {
		key, ok := keyOf(child)
		if key, fits := strings.CutPrefix(key, begin); ok && fits {
			found[i] = key
		} else {
			found[i] = noKey
			continue
		}
		if child.Kind == api.File {
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			var has bool
			if has, faults[i] = hasEntry(ctx, c, child.Path.String()); !has {
				found[i] = noKey
			}
		})
	}
	all.Wait()
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(key string) bool { return key == noKey })
	slices.Sort(found)
	return found, nil
}

// noKey stands for what is not listed; no key has a slash and something behind it.
const noKey = "//"

// keyOf returns what a child of a directory is in a list of keys.
func keyOf(child api.Stat) (key string, ok bool) {
	name := child.Path.Base()
	if child.Kind == api.Directory {
		key, ok = partOf(name, true)
		return key + "/", ok
	}
	if name, ok = strings.CutPrefix(name, entryMark); ok {
		key, ok = partOf(name, false)
	}
	return key, ok
}

// hasEntry reports whether there is an entry below a directory: one may be left empty by a Put or Delete
// that is under way, or whose process has ended.
func hasEntry(ctx context.Context, c *client.Client, dir string) (bool, error) {
	below, err := children(ctx, c, dir)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(below, func(child api.Stat) bool { return child.Kind == api.File }) {
		return true, nil
	}
	for _, child := range below {
		if has, err := hasEntry(ctx, c, child.Path.String()); has || err != nil {
			return has, err
		}
	}
	return false, nil
}

// children lists a directory, which may be absent.
func children(ctx context.Context, c *client.Client, dir string) ([]api.Stat, error) {
	below, err := c.List(ctx, dir)
	if errors.Is(err, api.NotFound) {
		return nil, nil
	}
	return below, err
}
