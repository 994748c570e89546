package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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

// What is no regular file has no file beside it: everything goes into it.
func TestPipeHasEverything(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	if err := os.Symlink(os.DevNull, name); err != nil {
		t.Fatal(err)
	}
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
	if err := os.Mkdir(RefusedFile(name), 0o700); err != nil {
		t.Fatal(err)
	}
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
