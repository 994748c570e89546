package e2e

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
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
	once sync.Once // guards what follows
	cell *world
	err  error

	mu   sync.Mutex // guards uses
	uses int
}

// sharedWorld returns the shared cell for one test, with a directory that no other test knows.
func sharedWorld(t *testing.T) *world {
	t.Helper()
	s := &sharedCell
	s.once.Do(func() { s.cell, s.err = startShared() })
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

func startShared() (*world, error) {
	base, err := findPorts()
	if err != nil {
		return nil, err
	}
	w := &world{dir: filepath.Join(binaries, "shared-cell"), base: base, root: "/ls/local"}
	w.dev, err = begin(w.devCommand())
	if err != nil {
		return nil, err
	}
	return w, w.dev.awaitText("ready: cell local", readyLimit)
}

// stopShared stops the shared cell, if a test has used it.
func stopShared() error {
	if c := sharedCell.cell; c != nil && c.dev != nil {
		return c.dev.end()
	}
	return nil
}

// ports is where the next search for free ports begins.
var ports struct {
	mu   sync.Mutex // guards next
	next int
}

// freePorts returns a base port on which chubbyd dev has room, another one at each call.
func freePorts(t *testing.T) int {
	t.Helper()
	base, err := findPorts()
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// findPorts is freePorts without a test. The ports are below those from which Linux takes the local
// ends of connections.
func findPorts() (int, error) {
	const room, first, slots = 30, 20000, 420
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for range slots {
		base := first + (os.Getpid()*37+ports.next)%slots*room // tests of other packages may look for ports, too
		ports.next++
		if areFree(base, room) {
			return base, nil
		}
	}
	return 0, errors.New("no thirty free ports in a row")
}

func areFree(base, n int) bool {
	var open []net.Listener
	defer func() {
		for _, l := range open {
			l.Close()
		}
	}()
	for i := range n {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+i))
		if err != nil {
			return false
		}
		open = append(open, l)
	}
	return true
}

// readyLimit is how long a cell may take until it serves, on a busy machine.
const readyLimit = 60 * time.Second
