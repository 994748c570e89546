package cell_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/backup"
)

// shelf is a directory of backups. Its files appear whole, as those of internal/backupstore do, which needs
// libraries that the modules beside this one should not list.
type shelf struct {
	dir    string
	failed atomic.Int64 // how often it could not be listed
	silent atomic.Bool  // the next that is made is made, and its maker is told that it failed
}

func (s *shelf) String() string { return s.dir }

func (s *shelf) List(context.Context) (names []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.failed.Add(1)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (s *shelf) Create(_ context.Context, name string, write func(io.Writer) error) error {
	var whole strings.Builder
	if err := write(&whole); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, whole.String())
	if s.silent.CompareAndSwap(true, false) {
		err = errors.New("the answer was lost")
	}
	return errors.Join(err, f.Close())
}

func (s *shelf) Remove(_ context.Context, name string) error {
	return os.Remove(filepath.Join(s.dir, name))
}

// A master takes backups by the time of the last one, under any master, keeps the newest ones, and touches nothing else: those of a cell
// that was lost, which had this one's name and another id, are what it is going to be restored from. While the place is gone, it tries
// again. Each backup that is taken is in the log once, with its name and size, and each that cannot be, with when it is tried again.
func TestScheduledBackups(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	place := &shelf{dir: dir}
	others := []string{
		"local-copy.backup", "local-b-20000101T000000Z-00112233.backup", "local-20000101T000000Z-00112233.backup", "local-20000101T000000Z.backup", "notes",
	}
	noErr(t, os.Mkdir(dir, 0o700))
	add := func(names ...string) {
		for _, name := range names {
			noErr(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
	}
	add(others...)
	inLoggedCell(t, 2, func(t *testing.T, ctx context.Context, c *celltest.Cell, log *logged) {
		write(t, ctx, c, "contents")
		taken := func() (names []string) {
			all := must(place.List(ctx))(t)
			for _, name := range all {
				if !slices.Contains(others, name) {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			failIf(t, len(all)-len(names) != len(others), "what is no backup of this cell was removed: there is %s", all)
			return names
		}
		var all []string    // of all times
		var lines []logLine // what the log has of them
		is := func(what string, kept int) {
			t.Helper()
			now := taken()
			for _, name := range now {
				if !slices.Contains(all, name) {
					all = append(all, name)
					about := must(os.Stat(filepath.Join(dir, name)))(t)
					lines = append(lines, logLine{"backup": name, "place": dir, "bytes": float64(about.Size())})
				}
			}
			failIf(t, len(now) != kept || !slices.Equal(now, all[len(all)-kept:]), "%s: there are %q, of %q", what, now, all)
		}
		time.Sleep(10 * time.Second)
		is("the first", 1)
		end := all[0][len("local-20000101T000000Z"):] // with the id of the cell
		future := []string{"local-29990101T000000Z" + end, "local-29990101T000001Z" + end, "local-29990101T000002Z" + end}
		others = append(others, future...)
		add(future...)
		time.Sleep(90 * time.Second)
		is("before two minutes are over", 1)
		c.Transfer()
		time.Sleep(10 * time.Second)
		is("the next master", 1)
		time.Sleep(30 * time.Second)
		is("after two minutes", 2)
		time.Sleep(2*time.Minute + 10*time.Second)
		is("two minutes later", 2)
		for _, name := range taken() {
			f := must(os.Open(filepath.Join(dir, name)))(t)
			b, err := backup.Read(f)
			failIf(t, err != nil || b.Cell != "local" || b.Nodes < 2, "%s: %v, %+v", name, err, b)
			_ = f.Close()
		}

		log.has(t, "backup_fails")
		noErr(t, os.Rename(dir, dir+".away"))
		time.Sleep(5*time.Minute + 10*time.Second)
		fails := log.events(t, "event", "backup_fails")
		equal(t, len(fails), 3, "the log says %d times that a backup could not be taken") // first by who wrote, then by who looked
		last := 0.0
		for _, one := range fails {
			retry, _ := one["retry_in"].(float64)
			if retry <= last || one.text("place") != dir || one.text("error") == "" {
				t.Errorf("a backup that could not be taken is logged as %v", one)
			}
			last = retry
		}
		if n := place.failed.Load(); n != 2 { // one minute and three after the first, which had not to look any more
			t.Errorf("it was looked %d times whether the place is back", n)
		}
		noErr(t, os.Rename(dir+".away", dir))
		time.Sleep(4 * time.Minute) // it tries again
		is("the place is back", 2)
		failIf(t, len(all) != 4, "%d backups were taken: %q", len(all), all)
		log.has(t, "backup_taken", lines...)
	}, calm, func(cfg *cell.Config) {
		cfg.Backups = cell.BackupSchedule{Place: place, Every: 2 * time.Minute, Keep: 2} // besides those of the far future
	})
}

// After a restore a backup is due: what the cell issues from then on, no earlier backup knows.
func TestBackupAfterARestore(t *testing.T) {
	place := &shelf{dir: t.TempDir()}
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		write(t, ctx, c, "contents")
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		is := func(what string, want int) {
			t.Helper()
			if names, err := place.List(ctx); err != nil || len(names) != want {
				t.Errorf("%s: there are %q, %v; want %d", what, names, err, want)
			}
		}
		time.Sleep(time.Minute)
		b := takeBackup(t, ctx, operator)
		is("before", 1)
		must(client.Restore(ctx, operator, sourceOf(b), nil))(t)
		time.Sleep(10 * time.Second)
		is("after a restore", 2)
		c.Restart(c.FailOver())
		time.Sleep(time.Minute)
		is("it is due once", 2)
	}, calm, func(cfg *cell.Config) {
		cfg.Backups = cell.BackupSchedule{Place: place, Every: 10 * time.Minute, Keep: 5}
	})
}

// What was being written when a master crashed is removed by the next one, and by one that goes on: no backup was ever written for longer. What may still be written, is
// of another cell, or is called in another way, stays.
func TestUnfinishedBackupsAreRemoved(t *testing.T) {
	place := &shelf{dir: t.TempDir()}
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		time.Sleep(10 * time.Second)
		names, err := place.List(ctx)
		stopIf(t, err != nil || len(names) != 1, "%q, %v", names, err)
		end := names[0][len("local-20000101T000000Z"):] // with the id of the cell
		left := ".local-19991231T215900Z" + end + ".123"
		stays := []string{
			names[0], ".local-19991231T230000Z" + end + ".7", ".local-29990101T000000Z" + end + ".7",
			".local-19991231T215900Z-00112233.backup.123", ".local-19991231T215900Z" + end + ".12a", ".local-19991231T215900Z" + end + ".", ".local-19991231T215900Z" + end, ".notes.1",
		}
		is := func(what string, want ...string) {
			t.Helper()
			names, err := place.List(ctx)
			slices.Sort(names)
			if slices.Sort(want); err != nil || !slices.Equal(names, want) {
				t.Errorf("%s, there are\n%q, %v; want\n%q", what, names, err, want)
			}
		}
		add := func(names ...string) {
			for _, name := range names {
				noErr(t, os.WriteFile(filepath.Join(place.String(), name), nil, 0o600))
			}
		}
		add(append(stays[1:], left)...)
		time.Sleep(10 * time.Second)
		c.Kill("r1")
		c.Restart("r1")
		time.Sleep(time.Minute)
		is("after a crash", stays...)
		add(left)
		time.Sleep(4 * time.Minute)
		is("while no backup is due", append(stays, left)...)
		time.Sleep(5 * time.Minute)
		now, err := place.List(ctx)
		failIf(t, err != nil || len(now) != len(stays)+1 || slices.Contains(now, left), "after the next backup, there are %q, %v", now, err)
	}, func(cfg *cell.Config) {
		cfg.Backups = cell.BackupSchedule{Place: place, Every: 10 * time.Minute, Keep: 5}
	})
}

// A backup is there, and the master was told that it failed: it is tried again, seen, and neither a failure nor taken twice.
func TestBackupWhoseAnswerIsLost(t *testing.T) {
	place := &shelf{dir: t.TempDir()}
	place.silent.Store(true)
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		time.Sleep(30 * time.Second)
		failures := c.Replica(c.Master()).BackupFailures
		equal(t, failures(), 1, "%d failures")
		time.Sleep(2 * time.Minute)
		if names, err := place.List(ctx); failures() != 0 || len(names) != 1 || err != nil {
			t.Errorf("after it was looked for, there are %d failures, and %q, %v", failures(), names, err)
		}
	}, func(cfg *cell.Config) {
		cfg.Backups = cell.BackupSchedule{Place: place, Every: 10 * time.Minute, Keep: 1}
	})
}

// slowly has somebody read a backup who does something before each part.
type slowly struct {
	bytes.Buffer
	before func()
}

func (s *slowly) Write(p []byte) (int, error) {
	s.before()
	return s.Buffer.Write(p)
}

// A backup is the cell at the moment of its beginning, whatever changes while it is taken.
func TestBackupIsOfOneMoment(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "saver", client.Config{})
		const files = 40
		contents := bytes.Repeat([]byte("x"), 32<<10) // ten parts
		var handles []*client.Handle
		for i := range files {
			h := open(t, ctx, cl, fmt.Sprintf("/ls/local/f%02d", i), 0)
			must(h.SetContents(ctx, contents))(t)
			handles = append(handles, h)
		}
		acquire(t, ctx, handles[7])
		i := 0
		out := slowly{before: func() { // every part comes after a change
			report(t, errOf(handles[i%files].SetContents(ctx, []byte("later"))))
			i++
		}}
		noErr(t, cl.Cell().Backup(ctx, &out))
		b := must(backup.Read(&out.Buffer))(t)
		failIf(t, i < 5 || b.Cell != "local" || b.Sessions != 1 || b.Locks != 1 || b.Contents < files*32<<10, "%d parts: %+v", i, b.About)
		for i := range files {
			node, ok := b.State.Tree.Get(api.Name(fmt.Sprintf("/f%02d", i)))
			if !ok || !bytes.Equal(node.Contents, contents) || (len(node.Holders) == 1) != (i == 7) {
				t.Errorf("f%02d is another in the backup", i)
			}
		}
	})
}

// writeParts writes files that make a backup of some parts.
func writeParts(t *testing.T, ctx context.Context, cl *client.Client) {
	t.Helper()
	for i := range 20 {
		putText(t, ctx, cl, fmt.Sprintf("/ls/local/f%02d", i), strings.Repeat("x", 32<<10))
	}
}

// A backup of which an answer is lost goes on; one of an earlier master, or that nobody asks for, does not.
func TestBackupParts(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "saver", client.Config{})
		writeParts(t, ctx, cl)
		w := connect(t, c.Dial, c.Master(), nil)
		read := func(id, part uint64) (*pb.BackupReply, error) {
			reply, err := w.Backup(ctx, &pb.BackupRequest{Cell: "local", Backup: id, Part: part})
			return reply, pb.Error(err)
		}
		const id = 7
		first, err := read(id, 1)
		if err != nil || first.GetLast() {
			t.Fatal(first.GetLast(), err)
		}
		if again, err := read(id, 1); err != nil || !bytes.Equal(again.GetData(), first.GetData()) {
			t.Error("the first part again:", err)
		}
		second := must(read(id, 2))(t)
		if again, err := read(id, 2); err != nil || !bytes.Equal(again.GetData(), second.GetData()) {
			t.Error("the last part again:", err)
		}
		for name, part := range map[string]uint64{"an earlier part": 1, "a later one": 4, "none": 0} {
			fails(t, errOf(read(id, part)), api.InvalidArgument, name)
		}
		report(t, errOf(read(8, 1)), "a second backup")
		fails(t, errOf(read(9, 1)), api.Unavailable, "a third one")
		time.Sleep(31 * time.Second)
		fails(t, errOf(read(id, 3)), api.NotFound, "nobody has asked for it for long")
		var all sync.WaitGroup
		for n := range uint64(8) { // at once: each is answered, or refused
			all.Go(func() { _, _ = read(10+n/4, 1+n%2) })
		}
		all.Wait()
	})
}

// The master changes while a backup is taken: the backup fails, and does not go on with another state.
func TestBackupOverAFailOver(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "saver", client.Config{})
		writeParts(t, ctx, cl)
		once := sync.OnceFunc(func() {
			c.FailOver()
			report(t, dial(t, ctx, c, "another", client.Config{}).Cell().Backup(ctx, &bytes.Buffer{}), "another one, meanwhile")
		})
		fails(t, cl.Cell().Backup(ctx, &slowly{before: once}), api.NotFound)
		report(t, cl.Cell().Backup(ctx, &bytes.Buffer{}), "once more")
	})
}
