package chubbymigrate

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/stub"
)

const path = "/ls/local/migrations"

// world is a cell in memory, in virtual time, and the drivers of some hosts.
type world struct {
	*testing.T
	cell *celltest.Cell
}

func inWorld(t *testing.T, replicas int, test func(w *world)) {
	t.Helper()
	celltest.Run(t, replicas, func(t *testing.T, c *celltest.Cell) { test(&world{T: t, cell: c}) })
}

// inRealTime runs a test with a cell in memory, in real time, as databases do not run in a bubble.
func inRealTime(t *testing.T, test func(cfg client.Config)) {
	t.Helper()
	test(celltest.Start(t, 1).ConfigOf("one"))
}

func (w *world) driver(host string, inner database.Driver, edits ...func(*Config)) *Driver {
	w.Helper()
	cfg := Config{Path: path, Client: w.cell.ConfigOf(host)}
	for _, edit := range edits {
		edit(&cfg)
	}
	d, err := New(w.Context(), inner, cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = d.Close() }) // its host may be cut off
	return d
}

func (w *world) operator() *client.Client {
	w.Helper()
	return w.cell.Client("operator", func(cfg *client.Config) { cfg.NoCache = true })
}

func run(d *Driver) error { return d.Run(strings.NewReader("a migration")) }

// A process that is cut off runs nothing any more before another can have the lock, and sets no version;
// its Unlock says so, and then it begins anew.
func TestLossComesFirst(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		own := &stub.Stub{}
		const delay = 30 * time.Second // longer than what the lease takes
		one := w.driver("one", own, func(cfg *Config) { cfg.LockDelay = delay })
		two := w.driver("two", &stub.Stub{}, func(cfg *Config) { cfg.Timeout = 5 * time.Minute })
		if err := one.Lock(); err != nil {
			w.Fatal(err)
		}
		if err := run(one); err != nil {
			w.Fatal(err)
		}
		w.cell.Cut("one")
		began := time.Now()
		var last time.Time // when a migration ran last
		var all sync.WaitGroup
		stop := make(chan struct{})
		all.Go(func() {
			for {
				if run(one) == nil {
					last = time.Now()
				}
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
		if err := two.Lock(); err != nil {
			w.Fatal(err)
		}
		at := time.Now()
		if took := at.Sub(began); took < delay {
			w.Errorf("the next has the lock after %v; the lock-delay is %v", took, delay)
		}
		time.Sleep(time.Second)
		close(stop)
		all.Wait()
		if before := at.Sub(last); before < 500*time.Millisecond {
			w.Errorf("a migration ran %v before another had the lock", before)
		}
		for name, err := range map[string]error{"Run": run(one), "SetVersion": one.SetVersion(1, false), "Drop": one.Drop()} {
			if !errors.Is(err, api.LockLost) {
				w.Errorf("%s after the loss: %v", name, err)
			}
		}
		if own.CurrentVersion != 0 {
			w.Error("the version was set after the loss")
		}
		if err := one.Lock(); !errors.Is(err, database.ErrLocked) {
			w.Errorf("Lock without Unlock: %v", err)
		}
		w.cell.Heal("one")
		if err := one.Unlock(); !errors.Is(err, api.LockLost) {
			w.Errorf("Unlock: %v", err)
		}
		if err := two.Unlock(); err != nil {
			w.Error(err)
		}
		before := two.Token()
		if err := errors.Join(one.Lock(), run(one), one.SetVersion(1, false)); err != nil {
			w.Errorf("anew: %v", err)
		}
		if before != 0 || one.Token() == 0 {
			w.Errorf("tokens: %d without the lock, %d with it", before, one.Token())
		}
		if err := one.Unlock(); err != nil {
			w.Error(err)
		}
	})
}

// Lock gives up in time, with the error that golang-migrate asks for, and leaves nothing behind.
func TestTimeout(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		one, two := w.driver("one", &stub.Stub{}), w.driver("two", &stub.Stub{}, func(cfg *Config) { cfg.Timeout = 3 * time.Second })
		if err := one.Unlock(); !errors.Is(err, database.ErrNotLocked) {
			w.Errorf("Unlock before Lock: %v", err)
		}
		if err := one.Lock(); err != nil {
			w.Fatal(err)
		}
		began := time.Now()
		err := two.Lock()
		if !errors.Is(err, database.ErrLocked) || !strings.Contains(err.Error(), "migrations of a database") {
			w.Errorf("the lock is held: %v", err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			w.Errorf("it gave up after %v; the timeout is 3s", took)
		}
		if err := one.Unlock(); err != nil {
			w.Fatal(err)
		}
		if err := one.Lock(); err != nil { // two is not in the queue any more, nor has it the lock
			w.Fatal(err)
		}
		if err := one.Unlock(); err != nil {
			w.Fatal(err)
		}
		w.cell.Cut("two")
		if err := two.Lock(); err == nil || errors.Is(err, database.ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("the cell is not reached: %v", err)
		}
		w.cell.Heal("two")
		if err := errors.Join(two.Lock(), two.Unlock()); err != nil {
			w.Error(err)
		}
	})
}

// The session is lost while Lock waits: it waits on.
func TestWaitsOn(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		one, two := w.driver("one", &stub.Stub{}), w.driver("two", &stub.Stub{}, func(cfg *Config) { cfg.Timeout = time.Hour })
		operator := w.operator()
		if err := one.Lock(); err != nil {
			w.Fatal(err)
		}
		got := make(chan error, 1)
		go func() { got <- two.Lock() }()
		for range 4 { // more often than Keeper.Do tries
			time.Sleep(10 * time.Second)
			list, err := operator.Cell().Locks(w.Context(), path)
			if err != nil || len(list) != 1 || len(list[0].Waiters) != 1 {
				w.Fatalf("locks: %+v, %v", list, err)
			}
			w.cell.Expire(list[0].Waiters[0].Session)
		}
		time.Sleep(10 * time.Second)
		if err := one.Unlock(); err != nil {
			w.Fatal(err)
		}
		if err := <-got; err != nil {
			w.Fatal(err)
		}
		if err := two.Unlock(); err != nil {
			w.Error(err)
		}
	})
}

// An operator takes the lock away in the middle of a migration: the driver that reads on gets an error.
func TestTakenWhileReading(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		inner := &stub.Stub{}
		d := w.driver("one", inner)
		operator := w.operator()
		if err := d.Lock(); err != nil {
			w.Fatal(err)
		}
		lock := d.held
		pieces := io.MultiReader(strings.NewReader("first"), readFunc(func() {
			if err := operator.BreakLock(w.Context(), path, "a test", false); err != nil {
				w.Error(err)
			}
			<-lock.Context().Done()
		}), strings.NewReader("second"))
		if err := d.Run(pieces); !errors.Is(err, api.LockLost) || len(inner.MigrationSequence) > 0 {
			w.Errorf("%v, and it has run %q", err, inner.MigrationSequence)
		}
		if err := d.Unlock(); !errors.Is(err, api.LockLost) {
			w.Errorf("Unlock: %v", err)
		}
	})
}

// readFunc does something when it is read, and ends.
type readFunc func()

// Read implements io.Reader.
func (f readFunc) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

// The lock of the wrapped driver is taken too, or not.
func TestDriversLock(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		inner := &stub.Stub{}
		d, skips := w.driver("one", inner), w.driver("two", inner, func(cfg *Config) { cfg.SkipDriversLock = true })
		if err := inner.Lock(); err != nil {
			w.Fatal(err)
		}
		if err := d.Lock(); !errors.Is(err, database.ErrLocked) {
			w.Errorf("the wrapped driver is locked: %v", err)
		}
		if err := errors.Join(skips.Lock(), skips.Unlock()); err != nil { // and so d has left nothing behind
			w.Error(err)
		}
		if err := inner.Unlock(); err != nil {
			w.Errorf("the lock of the wrapped driver is not as it was: %v", err)
		}
		if err := d.Lock(); err != nil {
			w.Fatal(err)
		}
		if err := inner.Lock(); !errors.Is(err, database.ErrLocked) {
			w.Errorf("the wrapped driver: %v", err)
		}
		if err := d.Unlock(); err != nil {
			w.Error(err)
		}
	})
}

// Open makes another Driver, which locks as this one does; Close gives the lock back.
func TestOpen(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		d := w.driver("one", &stub.Stub{}, func(cfg *Config) { cfg.Timeout = time.Second })
		opened, err := d.Open("stub://a")
		if err != nil {
			w.Fatal(err)
		}
		if err := opened.Lock(); err != nil {
			w.Fatal(err)
		}
		if err := d.Lock(); !errors.Is(err, database.ErrLocked) {
			w.Errorf("it is locked: %v", err)
		}
		if err := opened.Close(); err != nil {
			w.Fatal(err)
		}
		if err := d.Lock(); err != nil {
			w.Error(err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []Config{{}, {Path: "migrations"}, {Path: path, Timeout: -1}, {Path: path, LockDelay: -1}, {Path: path, LockDelay: time.Hour}, {Path: path, Client: client.Config{Lease: time.Hour}}} {
		if d, err := New(t.Context(), &stub.Stub{}, cfg); d != nil || !errors.Is(err, api.InvalidArgument) && !errors.Is(err, api.InvalidPath) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if d, err := New(t.Context(), nil, Config{Path: path}); d != nil || !errors.Is(err, api.InvalidArgument) {
		t.Error(err)
	}
}
