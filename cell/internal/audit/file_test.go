package audit

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		if err := a.write([]byte(line), true); err != nil {
			t.Fatal(err)
		}
	}
}

// A file is synced before another takes its place, no matter who renamed it; and so is the directory when a file is new, for its name.
func TestFilesAreSyncedBeforeTheNext(t *testing.T) {
	broken := errors.New("broken")
	for what, move := range map[string]func(t *testing.T, a *file){
		"full": func(t *testing.T, a *file) { a.mustWrite(t, 3) },
		"taken away": func(t *testing.T, a *file) {
			a.mustWrite(t, 2)
			if err := os.Rename(a.cfg.File, a.cfg.File+".1"); err != nil {
				t.Fatal(err)
			}
			a.mustWrite(t, 1)
		},
	} {
		a := newFile(testConfig(t))
		synced, names, fails := map[string]int64{}, 0, error(nil)
		a.syncFile = func(f *os.File) error {
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
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
		if err := a.open(); err != nil {
			t.Fatal(err)
		}
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
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kept := cfg.File + ".2"
	must(os.WriteFile(kept, []byte("kept"), 0o600))
	must(os.MkdirAll(filepath.Join(cfg.File+".3", "full"), 0o700)) // so .2 cannot become .3
	must(os.WriteFile(cfg.File+".1", []byte("younger"), 0o600))
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
	must(os.Rename(kept, kept+".away"))
	must(os.Mkdir(kept, 0o700))
	if now = now.Add(renameAgain); a.write([]byte(line), true) == nil || failed != 2 {
		t.Errorf("it is not tried again, or it is written: %d failures", failed)
	}
	must(os.Remove(kept))
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
	if err := os.WriteFile(a.cfg.File+".1", []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 5 { // there is no file to be renamed yet
		if err := a.rename(); err == nil {
			t.Fatal("nothing was renamed")
		}
	}
	if data, err := os.ReadFile(a.cfg.File + ".2"); err != nil || string(data) != "kept" {
		t.Errorf("%q, %v", data, err)
	}
}
