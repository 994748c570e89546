package chubbycron_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	chubbycron "github.com/chubbylock/chubby/contrib/gocron"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/go-co-op/gocron/v2"
)

const (
	leaderPath = "/ls/local/cron/leader"
	locksPath  = "/ls/local/cron/locks"
)

// world is a cell in memory, in virtual time, and hosts with schedulers.
type world struct {
	*testing.T
	cell *celltest.Cell
	ctx  context.Context //nolint:containedctx // of the test

	mu      sync.Mutex // guards what follows
	runs    []run
	working map[string]int // hosts, and how many pieces of work they do now
	newest  uint64         // token of work
	quiet   bool           // the test ends, and no more work begins
}

// run is the beginning of a piece of work.
type run struct {
	host  string
	at    time.Time
	token uint64 // 0 if it has none
}

func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	celltest.Run(t, 1, func(t *testing.T, c *celltest.Cell) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		t.Cleanup(cancel)
		test(&world{T: t, cell: c, ctx: ctx, working: map[string]int{}})
	})
}

// sleep lets virtual time pass.
func (w *world) sleep(d time.Duration) { time.Sleep(d) }

func (w *world) keeper(host string, edits ...func(*client.Config)) *client.Keeper {
	w.Helper()
	return w.cell.Keep(host, append([]func(*client.Config){func(cfg *client.Config) { cfg.Lease, cfg.Grace = 3*time.Second, time.Second }}, edits...)...)
}

func (w *world) elector(host string, edits ...func(*client.Config)) *chubbycron.Elector {
	w.Helper()
	e, err := chubbycron.NewElector(w.keeper(host, edits...), chubbycron.ElectorConfig{Path: leaderPath, LockDelay: 2 * time.Second})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		wants(w, "Close", e.Close(ctx), api.OK)
	})
	return e
}

func (w *world) locker(host string, edits ...func(*chubbycron.LockerConfig)) *chubbycron.Locker {
	w.Helper()
	cfg := chubbycron.LockerConfig{Path: locksPath, AtLeast: 4 * time.Second, LockDelay: 2 * time.Second}
	for _, edit := range edits {
		edit(&cfg)
	}
	k, err := chubbycron.NewLocker(w.keeper(host), cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		wants(w, "Close", k.Close(ctx), api.OK)
	})
	return k
}

// operator returns a session beside the schedulers.
func (w *world) operator() *client.Client {
	w.Helper()
	return w.cell.Client("operator")
}

// scheduler returns a scheduler that has started. It is shut down before electors and lockers that were made earlier are
// closed.
func (w *world) scheduler(options ...gocron.SchedulerOption) gocron.Scheduler {
	w.Helper()
	s, err := gocron.NewScheduler(append(options, gocron.WithStopTimeout(time.Minute))...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		w.quiesce() // Shutdown looks again and again whether jobs have ended, and virtual time stands still meanwhile
		wants(w, "Shutdown", s.Shutdown(), api.OK)
	})
	s.Start()
	return s
}

// quiesce waits until no work is done any more.
func (w *world) quiesce() {
	w.mu.Lock()
	first := !w.quiet
	w.quiet = true
	w.mu.Unlock()
	if first {
		time.Sleep(20 * time.Second)
	}
}

func (w *world) job(s gocron.Scheduler, when gocron.JobDefinition, task any, options ...gocron.JobOption) {
	w.Helper()
	if _, err := s.NewJob(when, gocron.NewTask(task), options...); err != nil {
		w.Fatal(err)
	}
}

// work does a piece of work of that length, or until ctx ends. Nobody else may work meanwhile.
func (w *world) work(ctx context.Context, host string, length time.Duration) {
	one := run{host: host, at: time.Now()}
	if seq, ok := sequencer.FromContext(ctx); ok {
		one.token = seq.Token()
	}
	w.mu.Lock()
	if w.quiet {
		w.mu.Unlock()
		return
	}
	for other, n := range w.working {
		if other != host && n > 0 {
			w.Errorf("%s begins while %s works", host, other)
		}
	}
	if one.token != 0 && one.token < w.newest {
		w.Errorf("%s begins with token %d after %d", host, one.token, w.newest)
	}
	w.newest = max(w.newest, one.token)
	w.working[host]++
	w.runs = append(w.runs, one)
	w.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
	w.mu.Lock()
	w.working[host]--
	w.mu.Unlock()
}

// done returns what was begun until now.
func (w *world) done() []run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]run(nil), w.runs...)
}

// awaitLeader waits until one of them leads, and returns which. (It asks by a task, so that IsLeader stays the schedulers'.)
func (w *world) awaitLeader(limit time.Duration, electors ...*chubbycron.Elector) int {
	w.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for i, e := range electors {
			if leads(e) {
				return i
			}
		}
	}
	w.Fatalf("nobody leads after %v", limit)
	return -1
}

func leads(e *chubbycron.Elector) bool {
	return e.Task(func(context.Context) error { return nil })(context.Background()) == nil
}

// wants checks the code of an error.
func wants(t testing.TB, what string, err error, code api.Code) {
	t.Helper()
	if err == nil && code == api.OK {
		return
	}
	if code == api.OK || !errors.Is(err, code) {
		t.Errorf("%s: %v; want %v", what, err, code)
	}
}
