package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// openRawLog opens only a log, with its fail-stop. It does not check that the
// log follows a snapshot: the crash tests compact without one.
func openRawLog(t testing.TB, dir string, kind LogStore) (*failStopLogs, *Stores) {
	t.Helper()
	s := &Stores{dir: dir}
	s.failStop = newFailStop(time.Minute, func() {}, func(err error) { t.Fatal(err) }) // on the test's goroutine
	if err := s.openFiles(storeOf(t, kind), Options{RaftLog: hclog.NewNullLogger(), segmentSize: crashSegment}); err != nil {
		t.Fatalf("open %s log after a crash: %v", kind, err)
	}
	return &failStopLogs{inner: s.rawLogs, failStop: s.failStop, path: dir}, s
}

// crashEntry returns an entry whose contents depend on its index and term.
func crashEntry(index, term uint64) *raft.Log {
	size := 1 + (index*7919+term*104729)%900
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: []byte(strings.Repeat(fmt.Sprintf("%d/%d;", index, term), int(size/8)+1))}
}

// crashLog is the expected log: entries first to first+len(terms)-1.
type crashLog struct {
	first uint64
	terms []uint64
}

func (l crashLog) last() uint64 { return l.first + uint64(len(l.terms)) - 1 }

// do applies one line of the child's report: "append from to term",
// "suffix from" or "prefix to".
func (l crashLog) do(line string) crashLog {
	var from, to, term uint64
	if n, _ := fmt.Sscanf(line, "append %d %d %d", &from, &to, &term); n == 3 {
		terms := slices.Clone(l.terms)
		if len(terms) == 0 {
			l.first = from
		}
		for range to - from + 1 {
			terms = append(terms, term)
		}
		return crashLog{l.first, terms}
	}
	if n, _ := fmt.Sscanf(line, "suffix %d", &from); n == 1 {
		return crashLog{l.first, slices.Clone(l.terms[:from-l.first])}
	}
	if n, _ := fmt.Sscanf(line, "prefix %d", &to); n == 1 {
		return crashLog{to + 1, slices.Clone(l.terms[to+1-l.first:])}
	}
	panic("the child said " + line)
}

// matches compares the log with the store, entry by entry.
func (l crashLog) matches(logs *failStopLogs) error {
	first, err := logs.FirstIndex()
	if err != nil {
		return err
	}
	last, err := logs.LastIndex()
	if err != nil {
		return err
	}
	if len(l.terms) == 0 {
		if first != 0 || last != 0 {
			return fmt.Errorf("entries %d to %d in a log that was emptied", first, last)
		}
		return nil
	}
	if first != l.first || last != l.last() {
		return fmt.Errorf("entries %d to %d, want %d to %d", first, last, l.first, l.last())
	}
	for i, term := range l.terms {
		want := crashEntry(l.first+uint64(i), term)
		var got raft.Log
		if err := logs.GetLog(want.Index, &got); err != nil {
			return fmt.Errorf("entry %d: %w", want.Index, err)
		}
		if got.Term != want.Term || string(got.Data) != string(want.Data) {
			return fmt.Errorf("entry %d is of term %d, want %d", want.Index, got.Term, want.Term)
		}
	}
	var beyond raft.Log
	if err := logs.GetLog(last+1, &beyond); err != raft.ErrLogNotFound { //nolint:errorlint // raft compares so
		return fmt.Errorf("entry %d, beyond the last: %w", last+1, err)
	}
	return nil
}

func crashBatch(from, to, term uint64) []*raft.Log {
	var batch []*raft.Log
	for index := from; index <= to; index++ {
		batch = append(batch, crashEntry(index, term))
	}
	return batch
}

// filesOf reads a directory, subdirectories included.
func filesOf(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// writeFiles makes the directory contain exactly these files.
func writeFiles(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for path := range filesOf(t, dir) {
		if files[path] == nil {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
