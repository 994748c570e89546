package sequencer

import (
	"context"
	"fmt"
	"strings"

	"github.com/chubbylock/chubby/api"
)

// DefaultMaxLocks is how many locks a Guard distinguishes by default. Each
// costs a few hundred bytes of memory and about a hundred in a FileStore, which
// rewrites its whole file when a lock changes hands.
const DefaultMaxLocks = 4096

// GuardConfig says which sequencers a Guard accepts. Store must be set, and at
// least one of Locks and Prefix.
type GuardConfig struct {
	// Locks are the accepted locks, by their whole paths. Write the cell's own
	// name, because that name is in its sequencers: /ls/local is right for a
	// cell that is itself named local, as a guard knows no default cell.
	Locks []api.Path
	// Prefix accepts the lock of this node and of every node below it. All
	// locks and the prefix of one Guard must belong to one cell.
	Prefix api.Path
	// Cell, if set, is the only cell id accepted. If it is not set, the first sequencer that is
	// otherwise acceptable decides, and Store remembers its cell. A cell that is bootstrapped again
	// has another id and counts from the start: set Cell to accept it.
	Cell api.CellID
	// Mode is the weakest mode accepted: Exclusive (the default, for servers
	// with one primary), or Shared, which accepts both.
	Mode api.LockMode
	// Store keeps the newest sequencer of each lock across restarts.
	Store Store
	// Checker, if set, is also asked about every request. With it a sequencer
	// is refused as soon as its lock is lost, not only when a newer one
	// arrives, and an invented sequencer is refused at once.
	Checker Checker
	// MaxLocks is the largest number of locks below Prefix that the Guard
	// distinguishes; zero means DefaultMaxLocks. The first use of one more is
	// refused with QuotaExceeded: if the Guard forgot a lock, it would let
	// stale holders in.
	MaxLocks int
}

// Store keeps the most recent sequencer of each lock across restarts. A Guard
// calls Load once, before anything else, and never calls Save concurrently.
type Store interface {
	// Load returns everything saved, in any order, of any number of locks. An
	// empty store returns nothing and no error. A store that cannot tell what
	// was saved must fail: a Guard that gets nothing accepts every token as
	// new.
	Load(ctx context.Context) ([]Sequencer, error)
	// Save keeps s as the newest of its lock (Cell and Path); it comes without its proof. When it returns
	// nil, s must survive a crash of the machine. It must fail with
	// BadSequencer, and change nothing, if it has a greater token of that lock.
	// After any other error s may be saved or not. Save should return when ctx
	// ends.
	Save(ctx context.Context, s Sequencer) error
}

// Checker tells whether a sequencer is still valid; a session with the cell can
// (Chubby §2.4: "against the server's Chubby cache"). A Guard calls it for each
// request, from any goroutine, before it lets the request in. An error refuses
// the request and is returned to the caller, in a Refusal if the code is
// BadSequencer. Return BadSequencer if the lock is lost, and Unavailable if
// that could not be found out. Cell.Checker and Client.CachingChecker of
// package client return a Checker.
type Checker interface {
	CheckSequencer(ctx context.Context, s Sequencer) error
}

// named returns the paths in the configuration.
func (c *GuardConfig) named() []api.Path {
	paths := append([]api.Path(nil), c.Locks...)
	if !c.Prefix.IsZero() {
		paths = append(paths, c.Prefix)
	}
	return paths
}

func (c *GuardConfig) validate() error {
	var faults []string
	named := c.named()
	if len(named) == 0 {
		faults = append(faults, "neither Locks nor Prefix is set, so no lock would be accepted")
	}
	for _, path := range named {
		switch {
		case path.IsZero():
			faults = append(faults, "Locks holds a zero path")
		case !named[0].IsZero() && path.Cell() != named[0].Cell():
			faults = append(faults, fmt.Sprintf("%s and %s are of two cells; make a Guard for each", named[0], path))
		}
	}
	if c.Cell != "" {
		if _, err := api.ParseCellID(string(c.Cell)); err != nil {
			faults = append(faults, "Cell: "+err.Error())
		}
	}
	if !c.Mode.Valid() {
		faults = append(faults, fmt.Sprintf("Mode %d is neither Exclusive nor Shared", c.Mode))
	}
	if c.Store == nil {
		faults = append(faults, "Store is not set; without one, stale holders would get in after a restart")
	}
	if c.MaxLocks < len(c.Locks) {
		faults = append(faults, fmt.Sprintf("MaxLocks is %d, for %d Locks", c.MaxLocks, len(c.Locks)))
	}
	if len(faults) == 0 {
		return nil
	}
	return &api.Error{Code: api.InvalidArgument, Op: "make a sequencer guard", Message: strings.Join(faults, "; ")}
}

func (c *GuardConfig) accepts(path api.Path) bool {
	for _, accepted := range c.Locks {
		if path == accepted {
			return true
		}
	}
	if c.Prefix.IsZero() {
		return false
	}
	rest, ok := strings.CutPrefix(path.String(), c.Prefix.String())
	return ok && (rest == "" || rest[0] == '/')
}

func (c *GuardConfig) describe() string {
	named := c.named()
	if len(named) == 1 {
		return named[0].String()
	}
	return fmt.Sprintf("%s and %d others", named[0], len(named)-1)
}
