package chubbymigrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/golang-migrate/migrate/v4/database"
)

// DefaultTimeout is how long Lock waits unless Config.Timeout says otherwise: less than
// migrate.DefaultLockTimeout.
const DefaultTimeout = 10 * time.Second

// unlockTime is how long Unlock and Close wait for the cell.
const unlockTime = 5 * time.Second

// Config is the configuration of a Driver.
type Config struct {
	// Client says how to reach the cell. Its Lease is that of the session: the longer it is, the
	// later others have the lock when this process fails.
	Client client.Config
	// Path is the file whose lock it is. It is created if it is absent, but its directory is not. All
	// that migrate the same database have the same.
	Path string
	// Timeout is how long Lock waits; 0 is DefaultTimeout. It has to be less than LockTimeout of
	// migrate.Migrate, which gives up without telling the driver: a lock that comes later stays held
	// until Close.
	Timeout time.Duration
	// LockDelay is for how long nobody gets the lock when the session of its holder has failed, so
	// that its last statements have ended (Chubby §2.4): up to api.MaxLockDelay; 0 is
	// api.DefaultLockDelay.
	LockDelay time.Duration
	// SkipDriversLock has Lock not take the lock of the wrapped driver too, as is right where it
	// does not work: behind a pooler of connections, for example.
	SkipDriversLock bool
}

// Driver is a database.Driver around another one. Its methods may be called from several goroutines, as
// far as the other one's may. Close it.
type Driver struct {
	inner  database.Driver
	cfg    Config
	keeper *client.Keeper

	mu    sync.Mutex   // guards what follows; no call is made while it is held
	taken bool         // from the beginning of Lock until Unlock, or until Lock has failed
	held  *client.Lock // also when it was lost, until Unlock
}

var _ database.Driver = (*Driver)(nil)

// New returns a Driver around inner, which it owns from then on: Close closes it. It does not connect to
// the cell yet, and the only error is InvalidArgument (or InvalidPath). The Driver does not end with ctx.
func New(ctx context.Context, inner database.Driver, cfg Config) (*Driver, error) {
	var faults []error
	if inner == nil {
		faults = append(faults, api.Errorf(api.InvalidArgument, "there is no driver to wrap"))
	}
	if _, err := api.ParsePath(cfg.Path); err != nil {
		faults = append(faults, err)
	}
	if cfg.Timeout < 0 {
		faults = append(faults, api.Errorf(api.InvalidArgument, "Timeout is %v; it cannot be negative", cfg.Timeout))
	}
	if cfg.LockDelay < 0 || cfg.LockDelay > api.MaxLockDelay {
		faults = append(faults, api.Errorf(api.InvalidArgument, "LockDelay is %v; want 0 to %v", cfg.LockDelay, api.MaxLockDelay))
	}
	cfg.Timeout, cfg.LockDelay = cmp.Or(cfg.Timeout, DefaultTimeout), cmp.Or(cfg.LockDelay, api.DefaultLockDelay)
	cfg.Client.NoCache = true // it reads nothing
	keeper, err := client.Keep(ctx, cfg.Client)
	if err := errors.Join(append(faults, err)...); err != nil {
		if keeper != nil {
			_ = keeper.Close(ctx) // it has no session yet
		}
		return nil, fmt.Errorf("configure the lock of migrations: %w", err)
	}
	return &Driver{inner: inner, cfg: cfg, keeper: keeper}, nil
}

// Open returns a Driver, with the same configuration and a session of its own, around what the wrapped
// driver's Open returns for the URL.
func (d *Driver) Open(url string) (database.Driver, error) {
	inner, err := d.inner.Open(url)
	if err != nil {
		return nil, err
	}
	opened, err := New(context.Background(), inner, d.cfg)
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return opened, nil
}

// Close closes the wrapped driver, and then ends the session, which gives the lock back. If the cell does
// not answer within five seconds, the lock ends with the lease.
func (d *Driver) Close() error {
	err := d.inner.Close()
	ctx, cancel := context.WithTimeout(context.Background(), unlockTime)
	defer cancel()
	return errors.Join(err, d.keeper.Close(ctx))
}

// Lock waits for the lock, in a queue with others, until Config.Timeout has passed: then the error is
// database.ErrLocked, with who holds it, or why the cell was not reached. It also takes the lock of the
// wrapped driver, unless Config.SkipDriversLock; its error is that of the other one then, and nothing is
// held. Of a Driver that has the lock, or has lost it and not called Unlock since, it is
// database.ErrLocked at once.
func (d *Driver) Lock() error {
	d.mu.Lock()
	taken := d.taken
	d.taken = true
	d.mu.Unlock()
	if taken {
		return database.ErrLocked
	}
	held, err := d.wait()
	if err == nil && !d.cfg.SkipDriversLock {
		if err = d.inner.Lock(); err != nil {
			_ = release(held) // in the background, if there is no answer
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.taken = false
		return err
	}
	d.held = held
	return nil
}

// wait acquires the lock, in one session after another, until Config.Timeout has passed.
func (d *Driver) wait() (held *client.Lock, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.Timeout)
	defer cancel()
	for {
		queued := false
		err = d.keeper.Do(ctx, func(c *client.Client) error {
			held, err = c.Acquire(ctx, d.cfg.Path, client.LockDelay(d.cfg.LockDelay), client.Reason("migrations of a database"),
				client.OnQueued(func(client.Queued) { queued = true }))
			return err
		})
		switch {
		case err == nil:
			return held, nil
		case ctx.Err() != nil && queued:
			return nil, fmt.Errorf("%w: %w", database.ErrLocked, err)
		case ctx.Err() != nil || !errors.Is(err, api.SessionExpired) && !errors.Is(err, api.LockLost):
			return nil, fmt.Errorf("lock for migrations: %w", err)
		}
	}
}

// release gives a lock back.
func release(held *client.Lock) error {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTime)
	defer cancel()
	return held.Release(ctx)
}

// Unlock gives back the lock of the wrapped driver and that of the cell. database.ErrNotLocked says that
// there was none. LockLost says that the lock was lost before, so that another process may have run
// migrations since; it is given back all the same, but a migrate.Migrate that gets an error here cannot be
// used again. If the cell does not answer within five seconds, the lock is given back in the background.
func (d *Driver) Unlock() error {
	d.mu.Lock()
	held := d.held
	d.held = nil
	d.mu.Unlock()
	if held == nil {
		return database.ErrNotLocked
	}
	var err error
	if !d.cfg.SkipDriversLock {
		err = d.inner.Unlock()
	}
	lost := d.lost("unlock", held)
	released := release(held)
	if lost == nil && (errors.Is(released, api.LockLost) || errors.Is(released, api.SessionExpired)) {
		lost = d.lostError("unlock", released)
	}
	d.mu.Lock()
	d.taken = false
	d.mu.Unlock()
	return errors.Join(err, lost)
}

// lost returns the error of an operation after the loss of its lock, nil while it is held. It reads the
// clock.
func (d *Driver) lost(op string, held *client.Lock) error {
	if why := held.Err(); why != nil {
		return d.lostError(op, why)
	}
	return nil
}

func (d *Driver) lostError(op string, why error) error {
	return &api.Error{Code: api.LockLost, Op: op, Path: d.cfg.Path, Err: why,
		Message: "the lock of the migrations was lost, and another process may run some by now; look at the version of the database, and begin anew"}
}

// check returns why an operation must not begin.
func (d *Driver) check(op string) error {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	if held == nil {
		return nil // the caller has taken no lock, as golang-migrate allows
	}
	return d.lost(op, held)
}

// Token returns the fencing token of the lock, which grows from one holder to the next, for a check in the
// database; 0 without a lock. It is the holder's also when the lock was lost, until Unlock.
func (d *Driver) Token() uint64 {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	if held == nil {
		return 0
	}
	return held.Token()
}

// Run runs a migration, unless the lock was lost: then it is LockLost, and nothing has run. Of a driver
// that reads the migration piece by piece, the pieces that come after the loss are refused, too. Without a
// Lock before it runs the migration, as every driver does.
func (d *Driver) Run(migration io.Reader) error {
	if err := d.check("run a migration"); err != nil {
		return err
	}
	return d.inner.Run(&checkedReader{Reader: migration, d: d})
}

// checkedReader is a migration that ends with an error when the lock is lost.
type checkedReader struct {
	io.Reader
	d *Driver
}

// Read implements io.Reader.
func (r *checkedReader) Read(p []byte) (int, error) {
	if err := r.d.check("read a migration"); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// SetVersion sets the version, unless the lock was lost: then it is LockLost.
func (d *Driver) SetVersion(version int, dirty bool) error {
	if err := d.check("set the version"); err != nil {
		return err
	}
	return d.inner.SetVersion(version, dirty)
}

// Version returns the version, with or without a lock.
func (d *Driver) Version() (version int, dirty bool, err error) { return d.inner.Version() }

// Drop deletes everything in the database, unless the lock was lost: then it is LockLost.
func (d *Driver) Drop() error {
	if err := d.check("drop everything"); err != nil {
		return err
	}
	return d.inner.Drop()
}
