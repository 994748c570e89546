package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/cell/recovery"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
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

// Whoever names a bucket that is reached in the clear is told so, each time.
func TestBackupInTheClearIsToldSo(t *testing.T) {
	for name, want := range map[string]bool{"s3://b/x.backup?endpoint=http://minio:9000": true, "s3://b/x.backup?endpoint=https://minio:9000": false, "x.backup": false} {
		var told bytes.Buffer
		g := &globals{stderr: term.NewSpeaker(&told)}
		if _, _, err := fileAt(g, name); err != nil {
			t.Fatal(err)
		}
		g.stderr.Finish(false)
		if strings.Contains(told.String(), "without encryption") != want {
			t.Errorf("%s: %q", name, told.String())
		}
	}
}

// What a replica has that was removed is old: a backup is made of it only for who says that he knows, and it is said at every look.
func TestRecoverFromARemovedReplica(t *testing.T) {
	member := recovery.Directory{Path: "copies/r1", Cell: "foo", Replica: "r1", Replicas: []string{"r1", "r2"}}
	gone := recovery.Directory{Path: "copies/r3", Cell: "foo", Replica: "r3", Replicas: []string{"r1", "r2"}, Removed: true}
	for _, c := range []struct {
		of      recovery.Directory
		asked   bool
		refused bool
	}{{member, false, false}, {member, true, false}, {gone, true, false}, {gone, false, true}} {
		err := mustBeCurrent(c.of, c.asked)
		if (err != nil) != c.refused || c.refused && (api.CodeOf(err) != api.InvalidArgument || !strings.Contains(err.Error(), "(r1, r2)") || !strings.Contains(err.Error(), "--from-removed")) {
			t.Errorf("%+v, asked for: %v: %v", c.of, c.asked, err)
		}
	}
	var out, remarks bytes.Buffer
	g := &globals{output: "text", stderr: term.NewSpeaker(&remarks)}
	if err := printSurvivors(g.output, &out, []recovery.Directory{gone, member}); err != nil || !strings.Contains(out.String(), "freshest, removed") {
		t.Errorf("%v: %s", err, &out)
	}
	other := member
	other.Replica = "r2"
	for _, c := range []struct {
		list []recovery.Directory
		want string
	}{
		{[]recovery.Directory{gone}, "what it has ends there; look for the directories of r1, r2\n"},
		{[]recovery.Directory{gone, member}, "what it has ends there; look for the directories of r2\n"},
		{[]recovery.Directory{gone, member, other}, "what it has ends there; leave it out\n"},
	} {
		remarks.Reset()
		g.stderr = term.NewSpeaker(&remarks)
		adviseRecovery(g, c.list)
		g.stderr.Finish(false)
		if !strings.Contains(remarks.String(), "r3 was removed from cell foo: "+c.want) {
			t.Errorf("%+v: %s", c.list, &remarks)
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
