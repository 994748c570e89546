package e2e

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/internal/ports"
)

// atATime is how many tests that run beside others do so. They wait for leases and processes most
// of the time, so there may be more of them than there are processors.
const atATime = 6

// setParallel allows that many tests at a time, unless the caller of the tests has said how many.
func setParallel() error {
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if said {
		return nil
	}
	return flag.Set("test.parallel", fmt.Sprint(atATime))
}

// besideOthers has a test run beside others that call it. A test that measures how long something
// takes on a machine that does nothing else runs alone, and does not call it. In make acceptance,
// where tests are larger, all run alone.
func besideOthers(t *testing.T) {
	t.Helper()
	if !alone() {
		t.Parallel()
	}
}

// sharedCell is a cell of five for the tests that leave its replicas alone. It starts with the first
// of them; TestMain stops it.
var sharedCell struct {
	once  sync.Once // guards what follows
	cell  *world
	ports *ports.Range
	err   error

	mu   sync.Mutex // guards uses
	uses int
}

// sharedWorld returns the shared cell for one test, with a directory that no other test knows.
func sharedWorld(t *testing.T) *world {
	t.Helper()
	s := &sharedCell
	s.once.Do(func() { s.cell, s.ports, s.err = startShared() })
	if s.err != nil {
		t.Fatalf("the shared cell: %v", s.err)
	}
	s.mu.Lock()
	s.uses++
	name := fmt.Sprintf("%s-%d", strings.ToLower(t.Name()), s.uses)
	s.mu.Unlock()
	w := &world{t: t, dir: s.cell.dir, base: s.cell.base, dev: s.cell.dev, root: s.cell.root + "/" + name}
	w.must("mkdir", w.root)
	return w
}

func startShared() (*world, *ports.Range, error) {
	r, err := ports.Reserve()
	if err != nil {
		return nil, nil, err
	}
	w := &world{dir: filepath.Join(binaries, "shared-cell"), base: r.Base(), root: "/ls/local"}
	w.dev, err = begin(w.devCommand())
	if err != nil {
		return nil, r, err
	}
	return w, r, w.dev.awaitText("ready: cell local", readyLimit)
}

// stopShared stops the shared cell, if a test has used it.
func stopShared() error {
	var err error
	if c := sharedCell.cell; c != nil && c.dev != nil {
		err = c.dev.end()
	}
	return errors.Join(err, sharedCell.ports.Close())
}

// freePorts returns a base port on which chubbyd dev has room, until the test ends.
func freePorts(t *testing.T) int {
	t.Helper()
	r, err := ports.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r.Base()
}

// readyLimit is how long a cell may take until it serves, on a busy machine.
const readyLimit = 60 * time.Second
