package chubbykv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/kvtools/valkeyrie"
	"github.com/kvtools/valkeyrie/store"
)

const (
	// StoreName is the name under which programs may register NewStore.
	StoreName = "chubby"
	// DefaultPath is the directory of a Store whose configuration names none.
	DefaultPath = "/ls/local/valkeyrie"
	// MaxValue is the most bytes that a value may have: those of a file, without room for what a
	// transaction carries besides. All of a cell is in the memory of its replicas.
	MaxValue = api.MaxContents - 8<<10
)

// Config is the configuration of a Store.
type Config struct {
	// Client says how to reach the cell. Its Lease is that of the sessions: the longer it is, the later
	// the locks, and the keys with a TTL, of a process that has failed are gone.
	Client client.Config
	// Path is the directory that the Store has for itself, as in /ls/local/app; it is created when it is
	// needed. Programs that share keys have the same, and nothing else may write below it. Empty is
	// DefaultPath.
	Path string
	// LockDelay is for how long nobody gets a lock when the session of its holder has failed (Chubby
	// §2.4), at most api.MaxLockDelay. 0 is api.DefaultLockDelay, which is 10 s; a negative one is none.
	LockDelay time.Duration
}

// Store is a store.Store of github.com/kvtools/valkeyrie in a Chubby cell. Its methods may be called from
// several goroutines. It has three goroutines for each Watch, two for each WatchTree besides those of its
// recipe.Tree; one for each key with a TTL that it has written, at most 10,000, while the TTL runs; and one
// for a lock that is held and whose renewal can be stopped. Close waits for all of them.
type Store struct {
	root      string
	lockDelay time.Duration
	keeper    *client.Keeper
	life      context.Context //nolint:containedctx // it is the Store's, ended by Close
	end       context.CancelCauseFunc
	tasks     sync.WaitGroup

	mu     sync.Mutex         // guards what follows; no call is made, and no other mutex taken, while it is held
	closed bool               // no task begins any more
	lease  *lease             // of the session there is; nil if none was needed
	expiry map[string]*expiry // of the keys with a TTL that runs
}

var _ store.Store = (*Store)(nil)

// New returns a Store. It does not connect yet, and the only errors are InvalidArgument and InvalidPath.
// The Store does not end with ctx.
func New(ctx context.Context, cfg Config) (*Store, error) {
	var faults []error
	root := cmp.Or(cfg.Path, DefaultPath)
	if p, err := api.ParsePath(root); err != nil {
		faults = append(faults, err)
	} else if p.IsRoot() {
		faults = append(faults, api.Errorf(api.InvalidArgument, "Path is %s, the root of a cell; name a directory that is the store's own", root))
	}
	if cfg.LockDelay > api.MaxLockDelay {
		faults = append(faults, api.Errorf(api.InvalidArgument, "LockDelay is %v; at most %v are allowed", cfg.LockDelay, api.MaxLockDelay))
	}
	keeper, err := client.Keep(ctx, cfg.Client)
	if err := errors.Join(append(faults, err)...); err != nil {
		if keeper != nil {
			_ = keeper.Close(ctx) // it has no session yet
		}
		return nil, fmt.Errorf("configure a store: %w", err)
	}
	s := &Store{root: root, lockDelay: max(cmp.Or(cfg.LockDelay, api.DefaultLockDelay), 0), keeper: keeper, expiry: map[string]*expiry{}}
	s.life, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return s, nil
}

// NewStore is New for valkeyrie.Register. endpoints are addresses of replicas, unless there are none, and
// options a *Config, or nil for the defaults; another type is a store.InvalidConfigurationError.
func NewStore(ctx context.Context, endpoints []string, options valkeyrie.Config) (store.Store, error) {
	var cfg Config
	switch o := options.(type) {
	case nil:
	case *Config:
		if o != nil {
			cfg = *o
		}
	default:
		return nil, &store.InvalidConfigurationError{Store: StoreName, Config: options}
	}
	if len(endpoints) > 0 {
		cfg.Client.Servers = endpoints
	}
	s, err := New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return s, nil
}

var _ valkeyrie.Constructor = NewStore

// Close ends the session, which frees the locks of the Store and removes its keys with a TTL: by calling
// it, the caller says that the work under the locks has stopped. The channels of watches are closed. Later
// calls fail with Unavailable. It takes five seconds at most; if the cell has not answered by then, the
// session ends with its lease, and the error says so.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(api.Errorf(api.Unavailable, "the store was closed"))
	s.tasks.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), client.CleanupTime)
	defer cancel()
	return s.keeper.Close(ctx)
}

// start begins a task of the Store, whose context ends with the Store.
func (s *Store) start(task func(ctx context.Context)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return context.Cause(s.life)
	}
	s.tasks.Go(func() { task(s.life) })
	return nil
}

// data, leases and locks are the directories that a Store has.
func (s *Store) data() string   { return s.root + "/data" }
func (s *Store) leases() string { return s.root + "/leases" }
func (s *Store) locks() string  { return s.root + "/locks" }

// repeat calls f with a session until ctx ends: again with another one when that was lost, whether f has
// changed something or not. So f must be such that it may be done twice.
func (s *Store) repeat(ctx context.Context, f func(c *client.Client) error) error {
	for {
		err := s.keeper.Do(ctx, f)
		if ctx.Err() != nil || !errors.Is(err, api.SessionExpired) && !errors.Is(err, api.Uncertain) {
			return err
		}
	}
}

// maxRounds is how often an operation begins again because others have changed the same key meanwhile. In
// each round one of the others was done.
const maxRounds = 100

// errRounds is the error when maxRounds were not enough.
func errRounds(op, path string) error {
	return &api.Error{Code: api.Unavailable, Op: op, Path: path, Message: fmt.Sprintf("others changed the key %d times meanwhile; try again later", maxRounds)}
}
