package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/session"
)

// log is a Log whose clock is that of the bubble.
type testLog struct {
	*Log
	name   string
	failed atomic.Int32
	logged strings.Builder
}

func openLog(t *testing.T, name string, edit func(*Config)) *testLog {
	t.Helper()
	l := &testLog{name: name}
	begun := time.Now()
	cfg := Config{
		Cell: "main", Replica: "r1", File: name, Size: 1 << 20, Files: 2,
		Wall: func() int64 { return 1_000_000_000 }, Clock: func() session.Instant { return session.Instant(time.Since(begun)) },
		Logger: slog.New(slog.NewTextHandler(&l.logged, nil)), Failed: func() { l.failed.Add(1) },
	}
	if edit != nil {
		edit(&cfg)
	}
	var err error
	if l.Log, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	return l
}

// records reads a file back.
func records(t *testing.T, name string) (all []Record) {
	t.Helper()
	f := testbed.Must(os.Open(name))(t)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Errorf("%q: %v", lines.Text(), err)
		}
		all = append(all, r)
	}
	return all
}

func TestRecords(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	l := openLog(t, name, nil)
	l.Act(Record{Call: "BreakLock", Principal: "ops", From: "10.0.0.1:5", On: "/ls/main/a", Reason: "two\nlines <&>", Code: "OK"})
	l.Refused(Record{Call: "Open", Message: strings.Repeat("é", maxField)})
	l.Close()
	data := testbed.Must(os.ReadFile(name))(t)
	want := `{"time":"2001-09-09T01:46:40Z","cell":"main","replica":"r1","event":"act","call":"BreakLock","principal":"ops","from":"10.0.0.1:5","on":"/ls/main/a","reason":"two\nlines <&>","code":"OK"}`
	if first, _, _ := strings.Cut(string(data), "\n"); first != want {
		t.Errorf("%s\nwant %s", first, want)
	}
	acts, refused := records(t, name), records(t, RefusedFile(name))
	if len(acts) != 1 || len(refused) != 1 || refused[0].Event != Refusal || len(refused[0].Message) > maxBoundedField+len("…") || !strings.HasSuffix(refused[0].Message, "é…") {
		t.Error(acts, refused)
	}
	for _, one := range []string{name, RefusedFile(name)} {
		if info, _ := os.Stat(one); info.Mode().Perm() != 0o600 {
			t.Error(one, info.Mode())
		}
	}
	l.Act(Record{Call: "late"})
	if l.failed.Load() != 1 || !strings.Contains(l.logged.String(), "late") {
		t.Error("an act after the end:", l.logged.String())
	}
}

// Whatever is in a field, its record is one line that can be read back, and nothing in it drives a terminal or hides from who looks.
func TestLinesCanBeSeen(t *testing.T) {
	for _, text := range []string{
		"a\n{\"event\":\"act\"}", "a\r\x1b[2K", "\x1b]0;title\a", "\x7f\b\b\b", "\u009b2J", "\u0085", "a\u2028b\u2029c", "\u202etca", "\u2066a\u2069",
		"a\u200bb\ufeff", "\u00a0", "\U000e0041\U000f0000", "\xff\x9b2J", "\xed\xa0\x80", "é 世 😀", "\"\\", strings.Repeat("\u009b", maxField),
	} {
		name := filepath.Join(t.TempDir(), "audit.log")
		l := openLog(t, name, nil)
		l.Act(Record{Call: text, Principal: text, From: text, On: text, Reason: text, Code: text, Message: text})
		l.Close()
		data := testbed.Must(os.ReadFile(name))(t)
		line, rest, ended := strings.Cut(string(data), "\n")
		if hidden := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); hidden >= 0 || !utf8.ValidString(line) || !ended || rest != "" {
			t.Errorf("%q is written as %q", text, data)
		}
		want := cut(strings.ToValidUTF8(text, "\ufffd"), maxField)
		if utf8.ValidString(text) {
			for _, r := range records(t, name) {
				if got := []string{r.Call, r.Principal, r.From, r.On, r.Reason, r.Code, r.Message}; slices.ContainsFunc(got, func(s string) bool { return s != want }) {
					t.Errorf("%q is read as %q", text, got)
				}
			}
		}
	}
}

// However many are refused, their lines stay few, and none is uncounted.
func TestRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "audit.log")
		l := openLog(t, name, nil)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				for range 1000 {
					l.Refused(Record{Call: "Open"})
				}
			})
		}
		all.Wait()
		more := 0
		for ; more < 10_000 && l.allow(0); more++ { // the queue may have been full
			synctest.Wait()
			l.Refused(Record{Call: "Open"})
		}
		l.Unknown(Record{Call: "unknown"})
		time.Sleep(omittedEvery) // virtual
		synctest.Wait()
		l.Refused(Record{Call: "last"})
		l.Act(Record{Call: "act"})
		l.Close()
		refused, omitted, unknown, acts := 0, 0, 0, 0
		for _, r := range append(records(t, name), records(t, RefusedFile(name))...) {
			switch r.Event {
			case Refusal:
				refused++
			case Omitted:
				omitted += r.Count
				unknown += r.Unknown
			case Act:
				acts++
			}
		}
		info, err := os.Stat(RefusedFile(name))
		if err != nil || info.Size() > boundedAtOnce+boundedPerSecond*int64(2*omittedEvery/time.Second)+100*200 || refused+omitted != 100_002+more || unknown != 1 || acts != 1 {
			t.Errorf("%d refusals and %d omitted (%d unknown), %d acts", refused, omitted, unknown, acts)
		}
	})
}

// Refusals that the disk did not take are counted in the next line that it takes, and else in the replica's log.
func TestRefusalsOfABrokenDiskAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "dir")
		name := filepath.Join(dir, "audit.log")
		testbed.NoErr(t, os.Mkdir(dir, 0o700))
		l := openLog(t, name, nil)
		refuse := func(times int) {
			for range times {
				l.Refused(Record{Call: "Open"})
				synctest.Wait()
			}
		}
		testbed.NoErr(t, os.RemoveAll(dir))
		refuse(3)
		time.Sleep(omittedEvery) // virtual; the line that counts them is not written either
		refuse(2)
		testbed.NoErr(t, os.Mkdir(dir, 0o700))
		refuse(1)
		all := records(t, RefusedFile(name))
		if len(all) != 2 || all[0].Event != Omitted || all[0].Count != 5 || all[1].Event != Refusal {
			t.Errorf("%+v", all)
		}
		testbed.NoErr(t, os.RemoveAll(dir))
		l.Refused(Record{Call: "Open"})
		l.Close()
		if said := "refusals have no line in the audit log"; !strings.Contains(l.logged.String(), said) || l.failed.Load() != 0 {
			t.Errorf("%d acts failed, and %q is not said: %s", l.failed.Load(), said, l.logged.String())
		}
	})
}

// The file is renamed when it is full, and so many are kept as were asked for.
func TestRotation(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	l := openLog(t, name, func(cfg *Config) { cfg.Size = 1000 })
	for i := range 50 {
		l.Act(Record{Call: fmt.Sprint(i)})
	}
	l.Close()
	var last []Record
	for _, one := range []string{name + ".2", name + ".1", name} {
		if info, err := os.Stat(one); err != nil || info.Size() > 1000 {
			t.Error(one, info.Size(), err)
		}
		last = append(last, records(t, one)...)
	}
	for i, r := range last {
		if r.Call != fmt.Sprint(50-len(last)+i) {
			t.Error(i, r.Call)
		}
	}
	if _, err := os.Stat(name + ".3"); !errors.Is(err, os.ErrNotExist) {
		t.Error("a file too many:", err)
	}
}

// A file that somebody else has renamed or removed is begun anew, and a line that a crash has torn stays alone.
func TestFileIsTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "audit.log")
		testbed.NoErr(t, os.WriteFile(name, []byte(`{"event":"ac`), 0o600))
		l := openLog(t, name, func(cfg *Config) { cfg.Files = 0 })
		act := func(call string) {
			l.Act(Record{Call: call})
			synctest.Wait()
		}
		act("one")
		data, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(data), "{\"event\":\"ac\n{") {
			t.Errorf("%q %v", data, err)
		}
		testbed.NoErr(t, os.Rename(name, name+".old"))
		act("two")
		testbed.NoErr(t, os.Remove(name))
		act("three")
		l.Close()
		if all := records(t, name); len(all) != 1 || all[0].Call != "three" {
			t.Error(all)
		}
	})
}

// A caller waits for a bounded time if nothing can be written.
func TestDiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLog(t, filepath.Join(t.TempDir(), "audit.log"), nil)
		l.Close()
		l.mu.Lock()
		l.closed = false // nobody takes from the queue any more
		l.mu.Unlock()
		begun := time.Now()
		for range maxQueue + 1 {
			l.Act(Record{Call: "BreakLock"})
		}
		if took := time.Since(begun); took != actWait || l.failed.Load() != 1 {
			t.Error(took, l.failed.Load())
		}
		l.Refused(Record{})
		if len(l.takeOmitted()) != 1 {
			t.Error("a refusal is not counted")
		}
	})
}
