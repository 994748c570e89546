package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
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

// besideOthers has a test run beside others that call it. A test that measures how long something takes on a machine
// that does nothing else runs alone, and does not call it. In make acceptance, where tests are larger, all run alone.
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
	noErr(t, s.err, "the shared cell")
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
	r := must(ports.Reserve())(t)
	t.Cleanup(func() { _ = r.Close() })
	return r.Base()
}

// readyLimit is how long a cell may take until it serves, on a busy machine.
const readyLimit = 60 * time.Second

// must returns what a call returned that had to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noErr(t, err)
		return value
	}
}

// noErr ends the test if there is an error; what says of what.
func noErr(t testing.TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(append(what, err)...)
	}
}

// report fails the test if there is an error, and lets it go on.
func report(t testing.TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Error(append(what, err)...)
	}
}

// errOf returns the error of a call alone.
func errOf[T any](_ T, err error) error { return err }

// equal fails the test unless got is want; what is a format for got.
func equal[T comparable](t testing.TB, got, want T, what string) {
	t.Helper()
	if got != want {
		t.Errorf(what+"; want %v", got, want)
	}
}

// fails fails the test unless err has this code, and lets it go on.
func fails(t testing.TB, err error, code api.Code, what ...any) {
	t.Helper()
	if api.CodeOf(err) != code {
		t.Error(append(what, err, "want", code)...)
	}
}

// failIf fails the test, which goes on, if something is wrong.
func failIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// stopIf ends the test if something is wrong.
func stopIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}

// slowMachine is what other tests, other packages and the disk may add to a step in make test: all of them share two processors,
// and a disk sometimes takes seconds for an fsync.
const slowMachine = time.Minute

// alone reports whether the tests run one by one, as those of make acceptance do: then they hold the cell to the times that are
// promised, and otherwise to what is promised besides.
func alone() bool { return *full || *rounds > ordinaryRounds }

// patience returns how long something may take that is promised within a limit.
func patience(limit time.Duration) time.Duration {
	if alone() {
		return limit
	}
	return limit + slowMachine
}

// longestElectionTimeout has a replica wait as long as it may until it thinks that the master is dead.
const longestElectionTimeout = "CHUBBYD_ELECTION_TIMEOUT=900ms"

// steadyMaster is the environment of a cell in which no other master may be elected: other tests may keep the processors busy for
// longer than the usual election timeout.
func steadyMaster() []string {
	if alone() {
		return nil
	}
	return []string{longestElectionTimeout}
}

// pace measures all the time how long a change takes: what a busy machine and its disk add to each entry of the log.
type pace struct {
	client *client.Client
	mu     sync.Mutex // guards what follows
	began  int64      // of the change that is under way
	done   []change
}

type change struct {
	ended int64
	took  time.Duration
}

// measurePace begins to measure. It ends with the test.
func (w *world) measurePace(t *testing.T) *pace {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &pace{client: w.clientFor(t, client.Config{NoCache: true}), began: machineNow()}
	h := w.handle(ctx, p.client, "/ls/local/pace")
	var measuring sync.WaitGroup
	t.Cleanup(func() {
		stop()
		measuring.Wait()
	})
	measuring.Go(func() {
		for tick := time.Tick(50 * time.Millisecond); ctx.Err() == nil; <-tick {
			p.mu.Lock()
			p.began = machineNow()
			p.mu.Unlock()
			_, err := h.SetContents(ctx, nil)
			if ctx.Err() == nil && err != nil {
				t.Error(err)
				return
			}
			p.mu.Lock()
			p.done = append(p.done, change{machineNow(), time.Duration(machineNow() - p.began)})
			p.mu.Unlock()
		}
	})
	return p
}

// slowest returns how long the slowest change took of those that were under way since an instant.
func (p *pace) slowest(since int64) (took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took = time.Duration(machineNow() - p.began)
	for _, c := range p.done {
		if c.ended >= since {
			took = max(took, c.took)
		}
	}
	return took
}

// epoch returns the epoch of the master that has answered last.
func (p *pace) epoch() api.Epoch { return p.client.Epoch() }

// comesTrue looks, with patience, until something holds, and reports whether it does.
func comesTrue(limit, every time.Duration, holds func() bool) bool {
	for end := time.Now().Add(patience(limit)); !holds(); time.Sleep(every) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
