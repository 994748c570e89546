package audit

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/session"
)

// line is a line that a file of testConfig has room for twice.
const line = "0123456789\n"

func testConfig(t *testing.T) Config {
	return Config{
		File: filepath.Join(t.TempDir(), "audit.log"), Size: 2 * int64(len(line)), Files: 3,
		Logger: slog.New(slog.DiscardHandler), Failed: func() {}, Clock: func() session.Instant { return 0 },
	}
}

// mustWrite writes lines, which must be possible.
func (a *file) mustWrite(t *testing.T, lines int) {
	t.Helper()
	for range lines {
		testbed.NoErr(t, a.write([]byte(line), true))
	}
}

// A file is synced before another takes its place, no matter who renamed it; and so is the directory when a file is new, for its name.
func TestFilesAreSyncedBeforeTheNext(t *testing.T) {
	broken := errors.New("broken")
	for what, move := range map[string]func(t *testing.T, a *file){
		"full": func(t *testing.T, a *file) { a.mustWrite(t, 3) },
		"taken away": func(t *testing.T, a *file) {
			a.mustWrite(t, 2)
			testbed.NoErr(t, os.Rename(a.cfg.File, a.cfg.File+".1"))
			a.mustWrite(t, 1)
		},
	} {
		a := newFile(testConfig(t))
		synced, names, fails := map[string]int64{}, 0, error(nil)
		a.syncFile = func(f *os.File) error {
			info := testbed.Must(f.Stat())(t)
			for _, name := range []string{a.cfg.File, a.cfg.File + ".1"} {
				if now, err := os.Stat(name); err == nil && os.SameFile(now, info) {
					synced[name] = info.Size()
				}
			}
			if what == "full" && names == 0 { // the first time
				if _, err := os.Stat(a.cfg.File + ".1"); err == nil {
					t.Error("the file is renamed before it is synced")
				}
			}
			return fails
		}
		a.syncDir = func(name string) error {
			if names++; name != filepath.Dir(a.cfg.File) {
				t.Error("synced is the directory", name)
			}
			return nil
		}
		fails = broken
		move(t, a)
		fails = nil
		if len(synced) != 1 || synced[a.cfg.File]+synced[a.cfg.File+".1"] != int64(2*len(line)) || names != 1 {
			t.Errorf("%s: synced are the files %v, and the directory %d times", what, synced, names)
		}
		if err := a.sync(); !errors.Is(err, broken) {
			t.Errorf("%s: that it could not be synced is not told: %v", what, err)
		}
		if err := a.sync(); err != nil || names != 2 {
			t.Errorf("%s: %v; the directory was synced %d times", what, err, names)
		}
		a.close()
		testbed.NoErr(t, a.open())
		if err := a.sync(); err != nil || names != 2 {
			t.Errorf("%s: %v; the directory was synced for a file that was there", what, err)
		}
		a.close()
	}
}

// A file that cannot be renamed is used further, for acts alone and not without end; that is said, and tried again; and the files that are kept are
// not moved each time.
func TestFileThatCannotBeRenamed(t *testing.T) {
	cfg := testConfig(t)
	var logged strings.Builder
	now, failed := session.Instant(0), 0
	cfg.Logger, cfg.Failed, cfg.Clock = slog.New(slog.NewTextHandler(&logged, nil)), func() { failed++ }, func() session.Instant { return now }
	a := newFile(cfg)
	defer func() { a.close() }()
	in := func(name, want string) {
		t.Helper()
		if data, err := os.ReadFile(name); err != nil || string(data) != want {
			t.Errorf("%s has %q (%v), want %q", name, data, err, want)
		}
	}
	kept := cfg.File + ".2"
	testbed.NoErr(t, os.WriteFile(kept, []byte("kept"), 0o600))
	testbed.NoErr(t, os.MkdirAll(filepath.Join(cfg.File+".3", "full"), 0o700)) // so .2 cannot become .3
	testbed.NoErr(t, os.WriteFile(cfg.File+".1", []byte("younger"), 0o600))
	a.mustWrite(t, 2)
	for range 3 {
		a.mustWrite(t, 1)
		if err := a.write([]byte(line), false); !errors.Is(err, errFull) {
			t.Error("a refusal:", err)
		}
		if strings.Count(logged.String(), "cannot be renamed") != 1 || failed != 1 {
			t.Errorf("said %d times: %s", failed, logged.String())
		}
		if a.size == 4*int64(len(line)) {
			break
		}
	}
	if err := a.write([]byte(line), true); !errors.Is(err, errFull) {
		t.Error("an act for which there is no room:", err)
	}
	in(cfg.File, strings.Repeat(line, 4))
	in(kept, "kept")
	testbed.NoErr(t, os.Rename(kept, kept+".away"))
	testbed.NoErr(t, os.Mkdir(kept, 0o700))
	if now = now.Add(renameAgain); a.write([]byte(line), true) == nil || failed != 2 {
		t.Errorf("it is not tried again, or it is written: %d failures", failed)
	}
	testbed.NoErr(t, os.Remove(kept))
	now = now.Add(renameAgain)
	a.mustWrite(t, 1)
	in(cfg.File, line)
	in(cfg.File+".1", strings.Repeat(line, 4))
	in(kept, "younger")
	if failed != 2 {
		t.Errorf("%d failures", failed)
	}
}

// Files that are kept move once, however often the last step fails.
func TestKeptFilesMoveOnce(t *testing.T) {
	a := newFile(testConfig(t))
	testbed.NoErr(t, os.WriteFile(a.cfg.File+".1", []byte("kept"), 0o600))
	for range 5 { // there is no file to be renamed yet
		if err := a.rename(); err == nil {
			t.Fatal("nothing was renamed")
		}
	}
	if data, err := os.ReadFile(a.cfg.File + ".2"); err != nil || string(data) != "kept" {
		t.Errorf("%q, %v", data, err)
	}
}

// However long strangers go on, and however long their lines are, what operators did stays in its file, which has nothing else; and the
// file of refusals grows by so many bytes.
func TestStrangersDoNotPushActsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "audit.log")
		l := openLog(t, name, func(cfg *Config) { cfg.Size = 16 << 20 })
		l.Act(Record{Call: "BreakLock", Principal: "ops"})
		const seconds = 1000
		long := strings.Repeat("\x01", 2*maxField)
		for range seconds {
			for range 10 {
				l.Refused(Record{Call: "Open", On: long, Reason: long, Message: long})
				l.Unknown(Record{Call: "BreakLock", On: long, Reason: long, Message: long})
			}
			time.Sleep(time.Second) // virtual
		}
		l.Act(Record{Call: "Transfer", Principal: "ops"})
		l.Close()
		if acts := records(t, name); len(acts) != 2 || acts[0].Call != "BreakLock" || acts[1].Call != "Transfer" {
			t.Errorf("%d records of acts: %.300v", len(acts), acts)
		}
		if _, err := os.Stat(name + ".1"); err == nil {
			t.Error("the file of acts was renamed")
		}
		var written int64
		for _, one := range []string{RefusedFile(name), RefusedFile(name) + ".1", RefusedFile(name) + ".2", RefusedFile(name) + ".3"} {
			if info, err := os.Stat(one); err == nil {
				written += info.Size()
			}
		}
		if most := int64(boundedAtOnce + 2*boundedPerSecond*seconds); written > most || written < boundedPerSecond*seconds {
			t.Errorf("%d bytes of refusals in %d seconds, want at most %d", written, seconds, most)
		}
	})
}

// Acts find room in the queue when refusals have filled what is theirs of it, while the disk hangs.
func TestRefusalsLeaveRoomInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLog(t, filepath.Join(t.TempDir(), "audit.log"), nil)
		l.Close()
		l.mu.Lock()
		l.closed = false // nobody takes from the queue any more
		l.mu.Unlock()
		for range 2 * maxQueue {
			l.Refused(Record{Call: "Open"})
		}
		begun := time.Now()
		for range maxQueue - maxBounded {
			l.Act(Record{Call: "BreakLock"})
		}
		if took := time.Since(begun); took != 0 || l.failed.Load() != 0 {
			t.Errorf("the acts have waited %v, and %d were not taken", took, l.failed.Load())
		}
	})
}

// An irregular file has no file beside it: everything goes into it.
func TestPipeHasEverything(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	testbed.NoErr(t, os.Symlink(os.DevNull, name))
	l := openLog(t, name, nil)
	l.Refused(Record{Call: "Open"})
	l.Close()
	if _, err := os.Stat(RefusedFile(name)); err == nil || l.logged.Len() > 0 {
		t.Errorf("a file of refusals was made, or: %s", l.logged.String())
	}
}

// A file of refusals that cannot be had is found before anything is served.
func TestFileOfRefusalsCannotBeHad(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	testbed.NoErr(t, os.Mkdir(RefusedFile(name), 0o700))
	if _, err := Open(Config{File: name}); err == nil || !strings.Contains(err.Error(), "file of refusals") {
		t.Error(err)
	}
}

func TestRefusedFile(t *testing.T) {
	for name, want := range map[string]string{"/var/log/chubby/audit.log": "/var/log/chubby/audit-refused.log", "audit": "audit-refused", "/var/log.d/audit": "/var/log.d/audit-refused"} {
		if got := RefusedFile(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
