package main

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/celltest"
)

// What is no whole backup is refused before a cell is looked for, also when it comes from a pipe.
func TestBackupsFromPipesAreChecked(t *testing.T) {
	for text, want := range map[string]string{"": "unexpected EOF", "\x1f\x8b" + strings.Repeat("x", 20): "it is compressed", strings.Repeat("x", 20): "it begins with"} {
		for _, args := range [][]string{{"cell", "restore", "-", "foo", "--yes"}, {"cell", "backup", "verify", "-"}, {"cell", "backup", "show", "-"}} {
			if _, err := execute(t, strings.NewReader(text), args...); exitCode(err) != exitFailed || !strings.Contains(err.Error(), "standard input: ") || !strings.Contains(err.Error(), want) {
				t.Errorf("%q of %q: %v, want %s", args, text, err, want)
			}
		}
	}
}

// A restore into another cell says for how long clients of the old one may still rely on its locks: from the backup on, for two minutes.
func TestRestoreTellsOfOldLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, old := filepath.Join(t.TempDir(), "old.backup"), celltest.Start(t, 1)
		if printed, code := runOver(t, old, old.Dial, "cell backup "+file, ""); code != 0 {
			t.Fatalf("exit %d: %s", code, printed)
		}
		taken := time.Now()
		for _, row := range []struct {
			into *celltest.Cell
			at   time.Duration // after the backup
			want string
		}{
			{old, 10 * time.Second, ""}, // its own sessions were ended
			{celltest.Start(t, 1), 30 * time.Second, "ran until 30s ago or later: for two minutes after its end, so for 1m30s at least, a client"},
			{celltest.Start(t, 1), 119 * time.Second, "ran until 1m59s ago or later: for two minutes after its end, so for 1s at least, a client"},
			{celltest.Start(t, 1), 2 * time.Minute, ""},
		} {
			time.Sleep(time.Until(taken.Add(row.at)))
			printed, code := runOver(t, row.into, row.into.Dial, "cell restore "+file+" --yes", "")
			if code != 0 || strings.Contains(printed, "two minutes") != (row.want != "") || !strings.Contains(printed, row.want) {
				t.Errorf("%v after the backup: exit %d: %s", row.at, code, printed)
			}
		}
	})
}
