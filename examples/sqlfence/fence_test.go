package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/examples/sqlfence"
	"github.com/chubbylock/chubby/sequencer"
)

const (
	cellA api.CellID = "00112233445566778899aabbccddeeff"
	cellB api.CellID = "ffeeddccbbaa99887766554433221100"
)

func of(path string, token uint64) sequencer.Sequencer {
	return sequencer.Sequencer{Cell: cellA, Path: api.MustParsePath(path), Mode: api.Exclusive, Generation: api.Generation(token)}
}

func primary(token uint64) sequencer.Sequencer { return of("/ls/foo/svc/primary", token) }

func newJob(t *testing.T, db *sql.DB, id int64) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), `INSERT INTO jobs (id, state) VALUES (?, ?)`, id, "new"); err != nil {
		t.Fatal(err)
	}
}

func wantJob(t *testing.T, db *sql.DB, id int64, state string, token uint64) {
	t.Helper()
	var gotState string
	var gotToken uint64
	if err := db.QueryRowContext(t.Context(), `SELECT state, token FROM jobs WHERE id = ?`, id).Scan(&gotState, &gotToken); err != nil {
		t.Fatal(err)
	}
	if gotState != state || gotToken != token {
		t.Errorf("job %d: %q of token %d, want %q of %d", id, gotState, gotToken, state, token)
	}
}

// wantStale checks that err is the refusal of a stale token.
func wantStale(t *testing.T, err error, token, newest uint64) {
	t.Helper()
	var r *sequencer.Refusal
	if !errors.As(err, &r) || r.Token != token || r.Newest != newest || !errors.Is(err, api.BadSequencer) {
		t.Errorf("%v; want token %d to be stale beside %d", err, token, newest)
	}
}

// A primary that was accepted is then stopped, and writes when it is continued, after the next
// one has written. No check before the statement can notice that; the statement does.
func TestLateWrite(t *testing.T) {
	db := newDatabase(t)
	newJob(t, db, 7)
	guard, err := sequencer.NewGuard(t.Context(), sequencer.GuardConfig{
		Locks: []api.Path{api.MustParsePath("/ls/foo/svc/primary")}, Store: sqlfence.Store{DB: db}})
	if err != nil {
		t.Fatal(err)
	}
	replaced := make(chan struct{})
	var late, fenced error
	var old sync.WaitGroup
	was, err := guard.Check(t.Context(), primary(41).String())
	if err != nil {
		t.Fatal(err)
	}
	old.Go(func() {
		<-replaced
		late = sqlfence.SetState(context.Background(), db, was, 7, "of 41")
		fenced = sqlfence.InFence(context.Background(), db, was, func(*sql.Tx) error { t.Error("let into the fence"); return nil })
	})
	is, err := guard.Check(t.Context(), primary(57).String())
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlfence.SetState(t.Context(), db, is, 7, "of 57"); err != nil {
		t.Fatal(err)
	}
	close(replaced)
	old.Wait()
	wantStale(t, late, 41, 57)
	wantStale(t, fenced, 41, 57)
	wantJob(t, db, 7, "of 57", 57)
	// The same token goes on writing.
	if err := sqlfence.SetState(t.Context(), db, is, 7, "done"); err != nil {
		t.Error(err)
	}
	wantJob(t, db, 7, "done", 57)
	if err := sqlfence.SetState(t.Context(), db, is, 8, "done"); !errors.Is(err, api.NotFound) {
		t.Errorf("a job that is not there: %v", err)
	}
}

// A row that the newer primary has not written is open to the older one, unless it uses the
// fence.
func TestUntouchedRow(t *testing.T) {
	db := newDatabase(t)
	newJob(t, db, 1)
	newJob(t, db, 2)
	touch := func(s sequencer.Sequencer, id int64) error {
		return sqlfence.InFence(t.Context(), db, s, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), `UPDATE jobs SET state = ?, token = ? WHERE id = ?`, "touched", s.Token(), id)
			return err
		})
	}
	if err := touch(primary(57), 1); err != nil {
		t.Fatal(err)
	}
	wantStale(t, touch(primary(41), 2), 41, 57)
	wantJob(t, db, 2, "new", 0)
	if err := sqlfence.SetState(t.Context(), db, primary(41), 2, "of 41"); err != nil {
		t.Errorf("its row alone knows of no other: %v", err)
	}
	// A write that fails leaves nothing behind, also not in the fence.
	failed := errors.New("no")
	if err := sqlfence.InFence(t.Context(), db, primary(60), func(*sql.Tx) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if err := touch(primary(57), 1); err != nil {
		t.Error(err)
	}
}

// Transactions of primaries that write at the same time are committed in the order of their
// tokens.
func TestFenceUnderContention(t *testing.T) {
	db := newDatabase(t)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE log (n INTEGER PRIMARY KEY AUTOINCREMENT, token BIGINT NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex // guards what follows
	newest, refused := uint64(0), 0
	for range 4 {
		all.Go(func() {
			for range 25 {
				mu.Lock()
				if newest == 0 || rand.N(4) == 0 {
					newest++
				}
				s := primary(max(newest-uint64(rand.N(3)), 1))
				mu.Unlock()
				if s.Token() > 1<<50 {
					s = primary(1)
				}
				err := sqlfence.InFence(t.Context(), db, s, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(t.Context(), `INSERT INTO log (token) VALUES (?)`, s.Token())
					return err
				})
				if errors.Is(err, api.BadSequencer) {
					mu.Lock()
					refused++
					mu.Unlock()
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	rows, err := db.QueryContext(t.Context(), `SELECT token FROM log ORDER BY n`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var tokens []uint64
	for rows.Next() {
		var token uint64
		if err := rows.Scan(&token); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	if err := rows.Err(); err != nil || !slices.IsSorted(tokens) || len(tokens)+refused != 100 || refused == 0 {
		t.Errorf("%v; %d refused, and these were not: %v", err, refused, tokens)
	}
}

// What a Guard requires of every Store, for the file and for the table.
func TestStores(t *testing.T) {
	for name, open := range map[string]func(*testing.T, string) sequencer.Store{
		"file": func(t *testing.T, name string) sequencer.Store {
			store, err := sequencer.OpenFileStore(name)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			return store
		},
		"table": func(t *testing.T, name string) sequencer.Store { return sqlfence.Store{DB: openDatabase(t, name)} },
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "store")
			again := primary(3) // of a cell that was bootstrapped again, which counts from the start
			again.Cell = cellB
			// Each part opens the store again, as a server does that is started again.
			part := func(name string, do func(*testing.T, sequencer.Store)) {
				t.Run(name, func(t *testing.T) { do(t, open(t, file)) })
			}
			holds := func(t *testing.T, store sequencer.Store, want ...sequencer.Sequencer) {
				t.Helper()
				got, err := store.Load(t.Context())
				if err != nil || len(got) != len(want) {
					t.Errorf("Load = %v, %v; want %v", got, err, want)
				}
				for _, s := range want {
					if !slices.Contains(got, s) {
						t.Errorf("Load = %v lacks %v", got, s)
					}
				}
			}
			part("empty", func(t *testing.T, store sequencer.Store) { holds(t, store) })
			part("save", func(t *testing.T, store sequencer.Store) {
				for _, s := range []sequencer.Sequencer{primary(41), primary(57), of("/ls/foo/a b's", 7), again, primary(57)} {
					if err := store.Save(t.Context(), s); err != nil {
						t.Fatal(err)
					}
				}
				wantStale(t, store.Save(t.Context(), primary(56)), 56, 57)
			})
			part("again", func(t *testing.T, store sequencer.Store) {
				holds(t, store, primary(57), of("/ls/foo/a b's", 7), again)
			})
			part("guard", func(t *testing.T, store sequencer.Store) {
				guard, err := sequencer.NewGuard(t.Context(), sequencer.GuardConfig{Prefix: api.MustParsePath("/ls/foo"), Cell: cellA, Store: store})
				if err != nil {
					t.Fatal(err)
				}
				_, err = guard.Check(t.Context(), primary(56).String())
				wantStale(t, err, 56, 57)
				if _, err := guard.Check(t.Context(), primary(60).String()); err != nil {
					t.Error(err)
				}
			})
			part("after", func(t *testing.T, store sequencer.Store) {
				holds(t, store, primary(60), of("/ls/foo/a b's", 7), again)
			})
			part("together", func(t *testing.T, store sequencer.Store) {
				var all sync.WaitGroup
				for i := range uint64(4) {
					all.Go(func() {
						for token := 61 + i; token < 85; token += 4 {
							if err := store.Save(t.Context(), primary(token)); err != nil && !errors.Is(err, api.BadSequencer) {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
				holds(t, store, primary(84), of("/ls/foo/a b's", 7), again)
			})
		})
	}
}

// Two servers use one database: each learns what the other has accepted when it gets a newer
// token, and the database always knows.
func TestTwoServers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "database")
	var guards []*sequencer.Guard
	for range 2 {
		guard, err := sequencer.NewGuard(t.Context(), sequencer.GuardConfig{
			Locks: []api.Path{api.MustParsePath("/ls/foo/svc/primary")}, Store: sqlfence.Store{DB: openDatabase(t, file)}})
		if err != nil {
			t.Fatal(err)
		}
		guards = append(guards, guard)
	}
	if _, err := guards[0].Check(t.Context(), primary(57).String()); err != nil {
		t.Fatal(err)
	}
	_, err := guards[1].Check(t.Context(), primary(41).String())
	wantStale(t, err, 41, 57)
	if stats := guards[1].Stats(); stats.RefusedStale != 1 {
		t.Errorf("%+v", stats)
	}
}
