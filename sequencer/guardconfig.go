package sequencer

import (
	"context"
	"fmt"
	"strings"

	"github.com/chubbylock/chubby/api"
)

// DefaultMaxLocks is how many locks a Guard keeps apart unless told otherwise.
// Each costs a few hundred bytes of memory and about a hundred in a FileStore,
// which is written as a whole when a lock changes hands.
const DefaultMaxLocks = 4096

// GuardConfig says which sequencers a Guard lets in. At least one of Locks and
// Prefix, and Store, must be set.
type GuardConfig struct {
	// Locks are the locks accepted, by their whole paths. The cell is written as
	// the cell calls itself, for that is what its sequencers say.
	Locks []api.Path
	// Prefix accepts the lock of this node and of every node below it. The locks
	// and the prefix of one Guard are all of one cell.
	Prefix api.Path
	// Cell, if set, is the only cell id accepted. If not, the first sequencer that
	// proves anything decides, and Store remembers. A cell that is founded anew has another
	// id and counts from the start, so it is accepted only once pinned here.
	Cell api.CellID
	// Mode is the weakest mode accepted: Exclusive (the default, for servers that
	// take orders from one primary) or Shared, which takes both.
	Mode api.LockMode
	// Store keeps the newest sequencer of each lock across restarts.
	Store Store
	// Checker, if set, is asked about every request besides, so that a sequencer
	// is refused from the moment its lock is lost and not only from the moment a
	// newer one arrives, and an invented one at once.
	Checker Checker
	// MaxLocks bounds the locks told apart below Prefix; zero means
	// DefaultMaxLocks. The first use of one more is refused with QuotaExceeded:
	// forgetting a lock would let its stale holders in.
	MaxLocks int
}

// Store keeps the most recent sequencer of each lock across restarts. A Guard
// calls Load once, before anything else, and never two Saves at a time.
type Store interface {
	// Load returns everything saved, in any order, of any number of locks. An
	// empty store returns nothing and no error; one that cannot tell what was
	// saved must fail, because to a Guard nothing means that all are new.
	Load(ctx context.Context) ([]Sequencer, error)
	// Save keeps s as the newest of its lock (Cell and Path). When it returns nil,
	// s must survive a crash of the machine. It must fail with BadSequencer, and
	// change nothing, if it holds a greater token of that lock; other errors may
	// leave s saved or not. It should give up when ctx ends.
	Save(ctx context.Context, s Sequencer) error
}

// Checker tells whether a sequencer is still valid; a session with the cell can
// (Chubby §2.4: "against the server's Chubby cache"). It is called for each
// request, from any goroutine, before the request is let in. Its error refuses
// the request and is returned to the caller, in a Refusal if the code is
// BadSequencer: so it should be if the lock is lost, and Unavailable if it could
// not find out. Cell.Checker and Client.CachingChecker of package client return one.
type Checker interface {
	CheckSequencer(ctx context.Context, s Sequencer) error
}

// named lists the paths of the configuration.
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
