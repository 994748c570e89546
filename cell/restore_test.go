package cell_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/backup"
	"github.com/chubbylock/chubby/sequencer"
)

// takeBackup returns a backup of the cell.
func takeBackup(t *testing.T, ctx context.Context, c *client.Client) *backup.Backup {
	t.Helper()
	var out bytes.Buffer
	noErr(t, c.Cell().Backup(ctx, &out))
	return must(backup.Read(&out))(t)
}

// sourceOf is a backup as a source of a restore.
func sourceOf(b *backup.Backup) client.RestoreBackup {
	source := client.RestoreBackup{Cell: b.Cell, CellID: b.CellID, Level: b.Level, Counter: b.Counter, Nodes: b.Nodes, Why: "restored"}
	source.Parts, source.Quotas = backup.Parts(b.State)
	return source
}

// guardOf is a guard of everything in a cell, which has seen nothing yet.
func guardOf(t *testing.T, ctx context.Context) *sequencer.Guard {
	t.Helper()
	store := must(sequencer.OpenFileStore(filepath.Join(t.TempDir(), "seen")))(t)
	t.Cleanup(func() { _ = store.Close() })
	return must(sequencer.NewGuard(ctx, sequencer.GuardConfig{Prefix: api.MustParsePath("/ls/local"), Store: store}))(t)
}

// admit has a guard see a sequencer, and reports whether it lets it in.
func admit(ctx context.Context, g *sequencer.Guard, l *client.Lock) error {
	_, err := g.Check(ctx, l.Sequencer().String())
	return err
}

// manyLocks is how many locks a cell has when it is restored.
func manyLocks() int {
	if *full {
		return 1000
	}
	return 60
}

// A backup is taken, locks move on, and the backup is restored into the same cell: the contents, the lists and the quotas are
// those of the backup; nobody has a session; no sequencer that was ever issued is valid, and none is let in by a guard that has seen the newest;
// the locks that are taken afterwards have higher tokens, which the guard lets in. There are 60 locks, with -full a thousand.
func TestRestore(t *testing.T) {
	locks := manyLocks()
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		guard := guardOf(t, ctx)
		operator := func() *client.Client { return dial(t, ctx, c, "operator", client.Config{NoCache: true}) }
		holder := dial(t, ctx, c, "holder", client.Config{})
		var handles []*client.Handle
		for i := range locks {
			handles = append(handles, open(t, ctx, holder, fmt.Sprintf("/ls/local/l%03d", i), 0))
		}
		must(handles[0].SetContents(ctx, []byte("of the backup")))(t)
		noErr(t, operator().SetPrincipalQuota(ctx, "somebody", api.Quota{Nodes: 7}))
		var issued []string
		take := func(i int) *client.Lock {
			l := acquire(t, ctx, handles[i])
			issued = append(issued, l.Sequencer().String())
			return l
		}
		held := take(1)
		b := takeBackup(t, ctx, holder)
		newest := held.Token()
		for i := 2; i < locks; i++ {
			l := take(i)
			noErr(t, admit(ctx, guard, l))
			newest = l.Token()
			if i%2 == 0 {
				noErr(t, l.Release(ctx))
			}
		}
		must(handles[0].SetContents(ctx, []byte("later")))(t)
		open(t, ctx, holder, "/ls/local/later", 0)
		must(holder.Open(ctx, "/ls/local/gone", client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true}))(t)
		b2 := takeBackup(t, ctx, holder) // with an ephemeral node

		is, err := client.Restore(ctx, operator(), sourceOf(b), nil)
		stopIf(t, err != nil || is.CellID != b.CellID || is.Counter < newest, "%+v, %v", is, err)
		if _, err := handles[0].SetContents(ctx, []byte("by the dead")); !errors.Is(err, api.SessionExpired) || !strings.Contains(err.Error(), "restored") {
			t.Error("a session from before:", err)
		}
		select {
		case <-held.Context().Done():
		case <-time.After(time.Minute):
			t.Error("a lock from before is still held")
		}
		after := dial(t, ctx, c, "after", client.Config{})
		for _, text := range issued {
			mustFail(t, after.Cell().CheckSequencer(ctx, text), api.BadSequencer, text)
		}
		equal(t, contentsOf(t, ctx, after, "/ls/local/l000"), "of the backup", "the contents are %q")
		if _, err := after.Open(ctx, "/ls/local/later", client.OpenOptions{Read: true}); !errors.Is(err, api.NotFound) {
			t.Error("what came after the backup:", err)
		}
		quotas, err := after.Cell().Quotas(ctx)
		if err != nil || !strings.Contains(fmt.Sprint(quotas), "somebody") {
			t.Error(quotas, err)
		}
		for i := range locks {
			l := acquire(t, ctx, open(t, ctx, after, fmt.Sprintf("/ls/local/l%03d", i), 0))
			if l.Token() <= is.Counter || admit(ctx, guard, l) != nil {
				t.Fatalf("l%03d has token %v after a restore at %d: %v", i, l.Token(), is.Counter, admit(ctx, guard, l))
			}
		}
		for _, text := range issued[1:] {
			if _, err := guard.Check(ctx, text); !errors.Is(err, api.BadSequencer) {
				t.Fatalf("the guard lets in %s: %v", text, err)
			}
		}
		restoreAgain(t, ctx, c, b2, is)
	})
}

// restoreAgain restores another backup, of later, with a fail-over before it and one after it.
func restoreAgain(t *testing.T, ctx context.Context, c *celltest.Cell, b *backup.Backup, before client.Restored) {
	t.Helper()
	c.Restart(c.FailOver())
	is, err := client.Restore(ctx, dial(t, ctx, c, "operator", client.Config{NoCache: true}), sourceOf(b), nil)
	stopIf(t, err != nil || is.Counter <= before.Counter, "%+v, %v", is, err)
	cl := dial(t, ctx, c, "third", client.Config{})
	if _, err := cl.Open(ctx, "/ls/local/gone", client.OpenOptions{Write: true, Create: client.NewFile}); err != nil {
		t.Error("the place of an ephemeral node of the backup:", err)
	}
	c.Restart(c.FailOver())
	equal(t, contentsOf(t, ctx, cl, "/ls/local/l000"), "later", "the contents are %q")
}

// The holder of a lock is cut off when a backup is restored: the restore waits until its lease is over, and nobody gets the
// lock before its lock-delay is, which a fail-over after the restore does not end either. So there are never two holders.
func TestRestoreWaitsForHolders(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		holder := dial(t, ctx, c, "holder", client.Config{})
		l := acquire(t, ctx, open(t, ctx, holder, "/ls/local/l", 30*time.Second))
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		b := takeBackup(t, ctx, operator)
		c.Sever("holder")
		began := time.Now()
		most := 0
		_, err := client.Restore(ctx, operator, sourceOf(b), func(p client.RestoreProgress) {
			if most = max(most, p.Sessions); p.Sealed && p.Sessions > 0 {
				short, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				if _, err := client.New(short, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("new"), Clock: celltest.Clock}); err == nil {
					t.Error("a session begins while a backup is about to be restored")
				}
			}
		})
		if took := time.Since(began); err != nil || most != 1 || took < 5*time.Second || took > 20*time.Second {
			t.Fatalf("%v, %d sessions left, after %v", err, most, took)
		}
		c.FailOver()
		next := acquire(t, ctx, open(t, ctx, dial(t, ctx, c, "next", client.Config{}), "/ls/local/l", 0))
		select {
		case <-l.Context().Done():
		default:
			t.Error("two hold the lock")
		}
		if took := time.Since(began); took < 35*time.Second {
			t.Errorf("the lock is had after %v, before the lock-delay of its last holder is over", took)
		}
		if next.Token() <= l.Token() {
			t.Error(next.Token(), l.Token())
		}
	})
}

// A restore is interrupted after each of its steps, and its session goes on: the cell has what it had, and another restore can begin then. The same
// with a fail-over after each step: the restore goes on.
func TestRestoreIsInterrupted(t *testing.T) {
	const parts = 4
	for _, steps := range []int{1, 2, parts, parts + 1} {
		for failOver, replicas := range map[bool]int{false: 1, true: 3} {
			inCellOf(t, replicas, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				writer := dial(t, ctx, c, "writer", client.Config{})
				for i := range parts {
					h := open(t, ctx, writer, fmt.Sprintf("/ls/local/f%d", i), 0)
					must(h.SetContents(ctx, bytes.Repeat([]byte("b"), 120<<10)))(t)
				}
				b := takeBackup(t, ctx, writer)
				must(open(t, ctx, writer, "/ls/local/f0", 0).SetContents(ctx, []byte("now")))(t)
				c.Sever("writer") // else its session may end before the restore first asks whether all have
				operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
				interrupted, interrupt := context.WithCancelCause(ctx)
				done := 0
				_, err := client.Restore(interrupted, operator, sourceOf(b), func(p client.RestoreProgress) {
					if done++; done != steps {
						return
					}
					if by, _ := takeBackup(t, ctx, operator).State.Restoring(); by != 0 {
						t.Error("a backup has in it what is being restored")
					}
					if failOver {
						c.FailOver()
						return
					}
					if steps <= parts { // else no session begins
						if _, err := client.Restore(ctx, dial(t, ctx, c, "another", client.Config{NoCache: true}), sourceOf(b), nil); !errors.Is(err, api.Exists) {
							t.Errorf("another restore during the first, after %d steps: %v", steps, err)
						}
					}
					interrupt(errors.New("interrupted"))
				})
				interrupt(nil)
				want := "now"
				switch {
				case failOver && err == nil:
					want = strings.Repeat("b", 120<<10)
				case failOver || err == nil:
					t.Fatalf("after %d steps, fail-over %v: %v", steps, failOver, err)
				}
				reader := dial(t, ctx, c, "reader", client.Config{NoCache: true})
				if text := contentsOf(t, ctx, reader, "/ls/local/f0"); text != want {
					t.Errorf("after %d steps, fail-over %v: the contents are %.10q", steps, failOver, text)
				}
				report(t, errOf(client.Restore(ctx, reader, sourceOf(b), nil)), "another restore")
			})
		}
	}
}

// The cell has done the last step of a restore, and the answers to it are lost until the time is over: the error is Uncertain, and the status
// says that it was restored.
func TestRestoreWhoseLastAnswerIsLost(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		var answers, last atomic.Int64
		last.Store(math.MaxInt64)
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true, Dialer: c.Lossy("operator", func(method string) bool {
			return method == "/chubby.v1.Chubby/Restore" && answers.Add(1) > last.Load()
		})})
		source := sourceOf(takeBackup(t, ctx, operator))
		must(operator.Put(ctx, "/ls/local/later", nil))(t)
		parts := source.Parts
		source.Parts = func(yield func([]byte, error) bool) {
			n := int64(0)
			parts(func(part []byte, err error) bool { n++; return yield(part, err) })
			last.Store(1 + n + 1) // the beginning, the parts, the seal
		}
		some, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		fails(t, errOf(client.Restore(some, operator, source, nil)), api.Uncertain, "it is restored, and the answer is lost")
		last.Store(math.MaxInt64)
		other := dial(t, ctx, c, "other", client.Config{NoCache: true})
		status, err := other.Cell().Status(ctx)
		if _, _, missing := other.Get(ctx, "/ls/local/later"); err != nil || status.Restored == nil || !errors.Is(missing, api.NotFound) {
			t.Errorf("status %+v, %v; what was written after the backup: %v", status.Restored, err, missing)
		}
	})
}
