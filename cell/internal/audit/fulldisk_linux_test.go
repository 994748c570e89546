package audit

import (
	"strings"
	"testing"
)

// An act that finds no room on the disk is in the replica's log, and counted.
func TestFullDisk(t *testing.T) {
	const full = "/dev/full"
	l := openLog(t, full, nil)
	l.Act(Record{Call: "BreakLock", Principal: "ops"})
	l.Close()
	if l.failed.Load() != 1 || !strings.Contains(l.logged.String(), "BreakLock") {
		t.Error(l.failed.Load(), l.logged.String())
	}
	if _, err := Open(Config{File: t.TempDir()}); err == nil {
		t.Error("a directory was opened")
	}
}
