// Command demo shows a primary, on a real cell of five processes: three candidates, a ledger that
// only the primary may write to, and failures of all kinds. It starts and stops everything itself,
// and takes about half a minute (16 s of it the demonstration). It fails unless the ledger has refused
// at least one write of a stale primary, and accepted none.
//
//	go run ./examples/primary/demo
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	base := flag.Int("base-port", 17421, "first port of the cell; the ledger takes the port below it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	s := &story{began: time.Now(), base: *base}
	err := s.tell(ctx)
	s.end()
	cancel()
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

// Leases are short, so that the demonstration is; see docs/concepts.md for the defaults.
const (
	lease     = 6 * time.Second
	lockDelay = 4 * time.Second
)

// story is the demonstration and everything it has started.
type story struct {
	began   time.Time
	base    int
	dir     string
	actors  map[string]*actor
	started []*actor
}

// say prints a line with the time since the beginning.
func (s *story) say(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

func (s *story) tell(ctx context.Context) error {
	for _, chapter := range []func(context.Context) error{
		s.build, s.startCell, s.startCandidates, s.killPrimary, s.killMaster, s.pausePrimary, s.judge,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) build(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "chubby-demo-")
	if err != nil {
		return err
	}
	s.dir, s.actors = dir, map[string]*actor{}
	s.say("building the cell, the command line and the example")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", dir, "./cmd/chubbyd", "./cmd/chubbyctl", "./examples/primary", "./examples/primary/ledger").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build (run the demo from the root of the repository): %w\n%s", err, out)
	}
	s.began = time.Now()
	return nil
}

func (s *story) startCell(ctx context.Context) error {
	s.say("starting a cell of five replicas, a process each, with fsync")
	dev, err := s.start("cell", "chubbyd", "dev", "--no-restart", "--data", filepath.Join(s.dir, "cell"), "--base-port", fmt.Sprint(s.base))
	if err != nil {
		return err
	}
	if _, err := dev.waitFor(ctx, "ready:"); err != nil {
		return err
	}
	s.say("the cell is ready: its master is %s", s.master(ctx))
	ledger, err := s.start("ledger", "ledger", "--listen", s.ledgerAddress(), "--state", filepath.Join(s.dir, "ledger.state"))
	if err != nil {
		return err
	}
	return s.until(ctx, "the ledger to serve", func() bool {
		_, err := s.stats(ctx)
		return err == nil || !ledger.running()
	})
}

func (s *story) startCandidates(ctx context.Context) error {
	for _, name := range []string{"alice", "bob", "carol"} {
		if err := s.candidate(name); err != nil {
			return err
		}
	}
	name, err := s.awaitPrimary(ctx, "")
	if err == nil {
		s.say("three candidates, leases of %v, lock-delay %v: %s is the primary and writes to the ledger", lease, lockDelay, name)
	}
	return err
}

// candidate starts a candidate. All are stubborn, because one of them will be paused.
func (s *story) candidate(name string) error {
	_, err := s.start(name, "primary", "--name", name, "--servers", s.servers(), "--ledger", "http://"+s.ledgerAddress(),
		"--lease", lease.String(), "--lock-delay", lockDelay.String(), "--stubborn")
	return err
}

func (s *story) killPrimary(ctx context.Context) error {
	name, err := s.primary(ctx)
	if err != nil {
		return err
	}
	s.say("kill -9 of the primary, %s", name)
	killed := time.Now()
	if err := s.actors[name].signal(syscall.SIGKILL); err != nil {
		return err
	}
	next, err := s.awaitPrimary(ctx, name)
	if err != nil {
		return err
	}
	after := time.Since(killed)
	s.say("%s is the primary, %.1f s later: the lease had to run out, then the lock-delay", next, after.Seconds())
	if after < lockDelay {
		return fmt.Errorf("the lock passed on after %v, within the lock-delay of %v", after, lockDelay)
	}
	delete(s.actors, name)
	return s.candidate(name)
}

func (s *story) killMaster(ctx context.Context) error {
	name, err := s.primary(ctx)
	if err != nil {
		return err
	}
	before, err := s.stats(ctx)
	if err != nil {
		return err
	}
	master := s.master(ctx)
	pid, err := s.replicaPID(master)
	if err != nil {
		return err
	}
	s.say("kill -9 of the cell's master, %s (pid %d)", master, pid)
	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	next := s.master(ctx)
	s.say("%s is the master, %.1f s later", next, time.Since(killed).Seconds())
	if err := s.pass(ctx, lease); err != nil {
		return err
	}
	still, err := s.primary(ctx)
	if err != nil {
		return err
	}
	after, err := s.stats(ctx)
	if err != nil {
		return err
	}
	if still != name || after.Accepted <= before.Accepted {
		return fmt.Errorf("the primary was disturbed: %s, then %s; %d writes, then %d", name, still, before.Accepted, after.Accepted)
	}
	s.say("%s is still the primary and never noticed: %d more writes", still, after.Accepted-before.Accepted)
	return nil
}

func (s *story) pausePrimary(ctx context.Context) error {
	name, err := s.primary(ctx)
	if err != nil {
		return err
	}
	s.say("SIGSTOP of the primary, %s, as a long garbage collection or a suspended machine would", name)
	paused := s.actors[name]
	if err := paused.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	next, err := s.awaitPrimary(ctx, name)
	if err != nil {
		return err
	}
	if _, err := s.actors[next].waitFor(ctx, "first write accepted"); err != nil {
		return err
	}
	s.say("%s is the primary, and has written to the ledger", next)
	s.say("SIGCONT of %s, which ignores its lock's context on purpose and goes on writing", name)
	if err := paused.signal(syscall.SIGCONT); err != nil {
		return err
	}
	line, err := paused.waitFor(ctx, "REFUSED")
	if err != nil {
		return err
	}
	s.say("%s", line)
	return s.pass(ctx, time.Second)
}

// judge reads the ledger, and checks that each entry was written by the newest primary at that time.
func (s *story) judge(ctx context.Context) error {
	stats, err := s.stats(ctx)
	if err != nil {
		return err
	}
	var entries []struct {
		Token uint64
		Text  string
	}
	if err := s.get(ctx, "/entries", &entries); err != nil {
		return err
	}
	stale, newest := 0, uint64(0)
	for _, e := range entries {
		if e.Token < newest {
			stale++
		}
		newest = max(newest, e.Token)
	}
	s.say("the ledger has %d entries; it refused %d writes of a stale primary and accepted %d", len(entries), stats.RefusedStale, stale)
	if stats.RefusedStale == 0 || stale > 0 {
		return errors.New("the ledger should have refused a stale write and accepted none")
	}
	return nil
}

// stats is what the ledger counts.
type stats struct{ Accepted, RefusedStale uint64 }

func (s *story) stats(ctx context.Context) (st stats, err error) {
	return st, s.get(ctx, "/stats", &st)
}

func (s *story) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.ledgerAddress()+path, nil)
	if err != nil {
		return err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	return json.NewDecoder(reply.Body).Decode(into)
}

func (s *story) ledgerAddress() string { return fmt.Sprintf("127.0.0.1:%d", s.base-1) }

func (s *story) servers() string {
	var list []string
	for i := range 5 {
		list = append(list, fmt.Sprintf("127.0.0.1:%d", s.base+i))
	}
	return strings.Join(list, ",")
}
