package chubbystorage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// MaxValue is the size of the largest value, in bytes. A cell has all that is stored in
// memory, on each of its replicas.
const MaxValue = 16 << 20

// Config is the configuration of a Storage. All servers that share certificates need the
// same Path.
type Config struct {
	// Path is the directory for all of it, as in "/ls/local/certmagic"; it is created if
	// it is absent. Its ACL should name those who may have the private keys.
	Path string
	// LockDelay is for how long nobody gets a lock after its holder has failed (Chubby
	// §2.4), at most api.MaxLockDelay. 0 is api.DefaultLockDelay, which is 10 s; a
	// negative one is none.
	LockDelay time.Duration
}

// Storage is a certmagic.Storage, certmagic.TryLocker and certmagic.LockLeaseRenewer in a
// Chubby cell. Its methods may be called from several goroutines. It has no goroutine.
type Storage struct {
	keeper    *client.Keeper
	root      api.Path
	lockDelay time.Duration
	chunk     int // bytes of a chunk, and of the largest file of a key: api.MaxContents, or less in tests

	mu   sync.Mutex                // guards what follows; no other mutex is taken while it is held
	held map[string][]*client.Lock // by name, the oldest first: all but the newest of a name were lost
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// New returns a Storage with the session of a Keeper, which others may use too, and which
// the caller closes, when CertMagic has stopped: that frees the locks. It makes no call.
// The error is InvalidPath or InvalidArgument.
func New(keeper *client.Keeper, cfg Config) (*Storage, error) {
	root, err := api.ParsePath(cfg.Path)
	if err != nil {
		return nil, err
	}
	switch {
	case root.IsRoot():
		return nil, &api.Error{Code: api.InvalidArgument, Op: "new storage", Path: cfg.Path, Message: "Path is the root of a cell; name a directory below it"}
	case cfg.LockDelay > api.MaxLockDelay:
		return nil, &api.Error{Code: api.InvalidArgument, Op: "new storage", Path: cfg.Path,
			Message: fmt.Sprintf("LockDelay is %v; at most %v are allowed", cfg.LockDelay, api.MaxLockDelay)}
	case cfg.LockDelay == 0:
		cfg.LockDelay = api.DefaultLockDelay
	}
	return &Storage{keeper: keeper, root: root, lockDelay: max(cfg.LockDelay, 0), chunk: api.MaxContents, held: map[string][]*client.Lock{}}, nil
}

// String names the storage in the log of CertMagic.
func (s *Storage) String() string { return "chubby:" + s.root.String() }

// do calls f with a session, until ctx ends: again with another one when that was lost; when
// an operator has taken away the lock of a writer; and when others have deleted a file so
// that it cannot be known whether it was written before. So f must be such that it may be
// done twice, once in part.
func (s *Storage) do(ctx context.Context, f func(c *client.Client) error) error {
	for {
		err := s.keeper.Do(ctx, f)
		again := false
		for _, code := range []api.Code{api.SessionExpired, api.LockLost, api.BadSequencer, api.Uncertain} {
			again = again || errors.Is(err, code)
		}
		if !again || ctx.Err() != nil {
			return err
		}
	}
}

// maxRounds is how often a call begins again because others create and delete the same
// directories.
const maxRounds = 10

// inDirectory calls f, and if it fails with NotFound, again when the directory has been
// created.
func inDirectory(ctx context.Context, c *client.Client, dir string, f func() error) error {
	for round := 1; ; round++ {
		err := f()
		if !errors.Is(err, api.NotFound) || round == maxRounds {
			return err
		}
		if err := c.MkdirAll(ctx, dir); err != nil {
			return err
		}
	}
}
