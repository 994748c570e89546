package audit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// line is a line that a file of testConfig has room for twice.
const line = "0123456789\n"

func testConfig(t *testing.T) Config {
	return Config{File: filepath.Join(t.TempDir(), "audit.log"), Size: 2 * int64(len(line)), Files: 3}
}

// mustWrite writes lines, which must be possible.
func (a *file) mustWrite(t *testing.T, lines int) {
	t.Helper()
	for range lines {
		if err := a.write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
}

// A file is synced before another takes its place, whoever has renamed it; and so is the directory when a file is new, for its name.
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
