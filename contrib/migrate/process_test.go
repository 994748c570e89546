package chubbymigrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	dt "github.com/golang-migrate/migrate/v4/database/testing"
	"github.com/golang-migrate/migrate/v4/source/iofs"
)

const (
	killsLast  = 8 * time.Second // of TestKills, on a machine that is fast enough for leastKills
	masterFor  = time.Second     // how long each master serves before it is killed
	leastKills = 3
	leastRuns  = 10 // of migrations by the crowd
)

// golang-migrate's suite, with SQLite, in a cell of processes whose master is killed again and again. And
// several migrate one database up and down meanwhile: never two at a time.
func TestKills(t *testing.T) {
	cell := processes.Start(t, 5)
	busy, stop := context.WithCancel(t.Context())
	killed := make(chan int, 1)
	go func() {
		defer stop()
		killed <- cell.KillMastersFor(busy, masterFor, killsLast, leastKills)
	}()
	wrap := func(t *testing.T, inner database.Driver, name string) *Driver {
		d, err := New(t.Context(), inner, Config{Path: "/ls/local/" + name, Client: client.Config{Servers: cell.Servers()}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	open := func(t *testing.T, file string) database.Driver {
		inner, err := (&sqlite.Sqlite{}).Open("sqlite://" + file)
		if err != nil {
			t.Fatal(err)
		}
		return inner
	}
	t.Run("all", func(t *testing.T) {
		t.Run("suite", func(t *testing.T) {
			t.Parallel()
			dir, rounds := t.TempDir(), 0
			for ; busy.Err() == nil; rounds++ {
				d := wrap(t, open(t, filepath.Join(dir, fmt.Sprint(rounds))), "suite")
				dt.Test(t, d, []byte("CREATE TABLE t (Qty int, Name string);"))
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				d = wrap(t, open(t, filepath.Join(dir, fmt.Sprint("m", rounds))), "suite")
				m := migrator(t, d)
				dt.TestMigrate(t, m)
				if a, b := m.Close(); a != nil || b != nil {
					t.Error(a, b)
				}
			}
			t.Logf("%d rounds", rounds)
		})
		t.Run("crowd", func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "one")
			var users, runs atomic.Int64
			var all sync.WaitGroup
			for range 3 {
				counted := &countedDriver{Driver: open(t, file), t: t, users: &users, runs: &runs}
				m := migrator(t, wrap(t, counted, "crowd"))
				m.LockTimeout = 3 * time.Minute
				all.Go(func() {
					for busy.Err() == nil || runs.Load() < leastRuns {
						for _, err := range []error{m.Up(), m.Down()} {
							if err != nil && !errors.Is(err, migrate.ErrNoChange) {
								t.Error(err)
								return
							}
						}
					}
					if a, b := m.Close(); a != nil || b != nil {
						t.Error(a, b)
					}
				})
			}
			all.Wait()
			t.Logf("%d migrations", runs.Load())
		})
	})
	n := <-killed
	if t.Logf("the master was killed %d times", n); n < leastKills {
		t.Errorf("want %d at least", leastKills)
	}
}

// The suite without kills, and without the time that they take.
func TestSuite(t *testing.T) {
	inRealTime(t, func(cfg client.Config) {
		inner, err := (&sqlite.Sqlite{}).Open("sqlite://" + filepath.Join(t.TempDir(), "one"))
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(t.Context(), inner, Config{Path: path, Client: cfg})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		dt.Test(t, d, []byte("CREATE TABLE t (Qty int, Name string);"))
	})
}

// migrator has two migrations.
func migrator(t *testing.T, d database.Driver) *migrate.Migrate {
	t.Helper()
	source, err := iofs.New(fstest.MapFS{
		"1_one.up.sql":   {Data: []byte("CREATE TABLE one (a int);")},
		"1_one.down.sql": {Data: []byte("DROP TABLE one;")},
		"2_two.up.sql":   {Data: []byte("CREATE TABLE two (a int);")},
		"2_two.down.sql": {Data: []byte("DROP TABLE two;")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	m, err := migrate.NewWithInstance("iofs", source, "sqlite", d)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// countedDriver checks that no two run migrations at a time. Its own lock is none, as that of SQLite's
// driver is for other instances.
type countedDriver struct {
	database.Driver
	t     *testing.T
	users *atomic.Int64
	runs  *atomic.Int64
}

func (d *countedDriver) Run(migration io.Reader) error {
	if d.users.Add(1) > 1 {
		d.t.Error("two run migrations at the same time")
	}
	defer d.users.Add(-1)
	d.runs.Add(1)
	<-time.After(5 * time.Millisecond)
	return d.Driver.Run(migration)
}
