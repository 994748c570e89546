package disk

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	crashEnv      = "CHUBBY_TEST_CRASH_DIR" // set in a child that will be killed: the directory of its log
	crashKindEnv  = "CHUBBY_TEST_CRASH_KIND"
	crashSegment  = 32 << 10 // bytes: small, so that segments end often
	crashRounds   = 20
	crashMaxBatch = 8
)

// TestLogSurvivesKill kills a process with SIGKILL while it appends, truncates
// and compacts, again and again on the same log. Each time every acknowledged
// operation must have been done, the one in flight completely or not at all,
// and the log must accept the next entry.
func TestLogSurvivesKill(t *testing.T) {
	if dir := os.Getenv(crashEnv); dir != "" {
		crashChild(t, dir, LogStore(os.Getenv(crashKindEnv)))
		return
	}
	onEachStore(t, func(t *testing.T, kind LogStore, dir string) {
		testbed.NoErr(t, os.Mkdir(dir, 0o700))
		var want crashLog
		var done int
		for round := range crashRounds {
			acked, inFlight := killedChild(t, dir, kind)
			for _, line := range acked {
				want = want.do(line)
			}
			done += len(acked)
			logs, s := openRawLog(t, dir, kind)
			err := want.matches(logs)
			if err != nil && inFlight != "" {
				if after := want.do(inFlight); after.matches(logs) == nil {
					want, err = after, nil
				}
			}
			if err != nil {
				t.Fatalf("round %d, after %q: %v", round, acked[max(0, len(acked)-3):], err)
			}
			// The log accepts the next append, and it can be read.
			next := uint64(1)
			if len(want.terms) > 0 {
				next = want.last() + 1
			}
			line := fmt.Sprintf("append %d %d %d", next, next, 1000+round)
			testbed.NoErr(t, logs.StoreLog(crashEntry(next, uint64(1000+round))))
			want = want.do(line)
			if err := want.matches(logs); err != nil {
				t.Fatalf("round %d, after the next append: %v", round, err)
			}
			testbed.NoErr(t, s.Close())
		}
		t.Logf("%s: %d operations acknowledged over %d kills", kind, done, crashRounds)
	})
}

// killedChild runs a child on the log and kills it in the middle of its work.
// It returns the operations that the child acknowledged, and the one that it
// had begun.
func killedChild(t *testing.T, dir string, kind LogStore) (acked []string, inFlight string) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestLogSurvivesKill$", "-test.timeout=60s")
	child.Env = append(os.Environ(), crashEnv+"="+dir, crashKindEnv+"="+string(kind))
	out := testbed.Must(child.StdoutPipe())(t)
	child.Stderr = os.Stderr
	testbed.NoErr(t, child.Start())
	lines := bufio.NewScanner(out)
	kill := time.AfterFunc(30*time.Second, func() { _ = child.Process.Kill() }) // in case it never begins
	for left := 10 + rand.IntN(80); lines.Scan(); left-- {
		what, op, ok := strings.Cut(lines.Text(), ": ")
		switch {
		case ok && what == "begin":
			inFlight = op
		case ok && what == "done":
			acked, inFlight = append(acked, op), ""
		}
		if left == 0 {
			kill.Reset(time.Duration(rand.IntN(3_000)) * time.Microsecond)
		}
	}
	_ = child.Wait() // it was killed
	return acked, inFlight
}

// crashChild works on the log until it is killed. It reports each operation
// before it begins and when it has ended.
func crashChild(t *testing.T, dir string, kind LogStore) {
	logs, _ := openRawLog(t, dir, kind)
	first := testbed.Must(logs.FirstIndex())(t)
	last := testbed.Must(logs.LastIndex())(t)
	for term := uint64(1); ; term++ {
		kept := last - first + 1
		if last == 0 {
			kept = 0
		}
		switch n := rand.Uint64N(10); {
		case n == 0 && kept > 3:
			from := last - rand.Uint64N(3)
			crashStep(t, fmt.Sprintf("suffix %d", from), func() error { return logs.DeleteRange(from, last) })
			last = from - 1
		case n == 1 && kept > 100:
			to := first + kept/2
			crashStep(t, fmt.Sprintf("prefix %d", to), func() error { return logs.DeleteRange(first, to) })
			first = to + 1
		default:
			batch := make([]*raft.Log, 1+rand.IntN(crashMaxBatch))
			for i := range batch {
				batch[i] = crashEntry(last+1+uint64(i), term)
			}
			crashStep(t, fmt.Sprintf("append %d %d %d", last+1, last+uint64(len(batch)), term), func() error { return logs.StoreLogs(batch) })
			last += uint64(len(batch))
			first = max(first, 1)
		}
	}
}

func crashStep(t *testing.T, op string, do func() error) {
	fmt.Println("begin: " + op)
	testbed.NoErr(t, do())
	fmt.Println("done: " + op)
}

// TestLogSurvivesPowerLoss: if the power fails during an append, the disk may
// have any part of it. Every operation acknowledged before must be there, the
// append completely or not at all, and the log must accept the next entry. The
// test makes the parts from the files before and after the append.
func TestLogSurvivesPowerLoss(t *testing.T) {
	type trial struct {
		kind LogStore
		last uint64 // the last entry of the append that the power loss interrupts
	}
	trials := map[string]trial{
		"wal, segment filled": {WALStore, 120}, // raft-wal writes the segment's index with it
	}
	for _, kind := range LogStores() {
		trials[string(kind)] = trial{kind, 20}
	}
	for name, c := range trials {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, kind := t.TempDir(), c.kind
			var want crashLog
			step := func(op string, do func(*failStopLogs) error) {
				logs, s := openRawLog(t, dir, kind)
				testbed.NoErr(t, do(logs))
				want = want.do(op)
				testbed.NoErr(t, s.Close())
			}
			step("append 1 12 1", func(l *failStopLogs) error { return l.StoreLogs(crashBatch(1, 12, 1)) })
			step("suffix 9", func(l *failStopLogs) error { return l.DeleteRange(9, 12) })
			step("append 9 14 2", func(l *failStopLogs) error { return l.StoreLogs(crashBatch(9, 14, 2)) })
			before := filesOf(t, dir)
			acked := want
			step(fmt.Sprintf("append 15 %d 2", c.last), func(l *failStopLogs) error { return l.StoreLogs(crashBatch(15, c.last, 2)) })
			after := filesOf(t, dir)
			whole := 0
			for i := range 60 {
				writeFiles(t, dir, tornBetween(before, after, i))
				logs, s := openRawLog(t, dir, kind)
				got := acked
				err := acked.matches(logs)
				if err != nil && want.matches(logs) == nil {
					got, err = want, nil
					whole++
				}
				if err != nil {
					t.Fatalf("variant %d: %v", i, err)
				}
				next := got.last() + 1
				if err := logs.StoreLogs(crashBatch(next, next+2, 3)); err != nil {
					t.Fatalf("variant %d: the next append: %v", i, err)
				}
				if err := got.do(fmt.Sprintf("append %d %d 3", next, next+2)).matches(logs); err != nil {
					t.Fatalf("variant %d, after the next append: %v", i, err)
				}
				testbed.NoErr(t, s.Close())
			}
			if whole == 0 || whole == 60 {
				t.Errorf("the append survived in %d of 60 variants: the test needs both outcomes", whole)
			}
		})
	}
}

// tornBetween returns the files of before with some of the 512-byte sectors
// that differ in after. Variant 0 is before, variant 1 is after. bbolt syncs
// its pages before it writes a meta page (the first two), which is one sector:
// that sector comes with all others or not at all. raft-wal writes its metadata
// after the segment, and the note of the log's end is written after that.
func tornBetween(before, after map[string][]byte, variant int) map[string][]byte {
	const sector = 512
	const metas = 2 * 4096
	switch variant {
	case 0:
		return before
	case 1:
		return after
	}
	some := rand.New(rand.NewPCG(uint64(variant), 0))
	chance := some.Float64()
	torn := map[string][]byte{}
	for path, old := range before {
		text := slices.Clone(old)
		now := after[path]
		isBbolt := len(old) >= 20 && binary.LittleEndian.Uint32(old[16:]) == 0xED0CDAED // the magic number of its first page
		if base := filepath.Base(path); base == walMetaName || base == logNoteName {
			now = old
		}
		text = append(text, make([]byte, max(0, len(now)-len(text)))...)
		for at := 0; at < len(now); at += sector {
			end := min(at+sector, len(now))
			meta := isBbolt && at < metas
			if !meta && some.Float64() < chance {
				copy(text[at:end], now[at:end])
			}
		}
		torn[path] = text
	}
	return torn
}

// TestWALNotesItsEnd: raft-wal removes a damaged end of its log, as if a crash
// had interrupted the write. Confirmed entries must not be lost silently in
// this way.
func TestWALNotesItsEnd(t *testing.T) {
	dir := t.TempDir()
	logs, s := openRawLog(t, dir, WALStore)
	for last := uint64(4); last <= 20; last += 4 {
		testbed.NoErr(t, logs.StoreLogs(crashBatch(last-3, last, 1)))
	}
	testbed.NoErr(t, logs.DeleteRange(19, 20)) // these were deleted, and are not missed
	mustClose(t, s)
	logs, s = openRawLog(t, dir, WALStore)
	if last, err := logs.LastIndex(); err != nil || last != 18 {
		t.Fatalf("the log ends at %d, %v", last, err)
	}
	testbed.NoErr(t, logs.StoreLogs(crashBatch(19, 24, 2)))
	mustClose(t, s)
	newest := []byte(nil)
	name := ""
	for path, text := range filesOf(t, dir) {
		if filepath.Dir(path) == filepath.Join(dir, walLogName) && filepath.Ext(path) == ".wal" && bytes.Contains(text, crashEntry(24, 2).Data) {
			name, newest = path, text
		}
	}
	at := bytes.LastIndex(newest, crashEntry(24, 2).Data)
	if at < 0 {
		t.Fatal("the last entry is in no segment")
	}
	newest[at] ^= 1
	testbed.NoErr(t, os.WriteFile(name, newest, 0o600))
	again := &Stores{dir: dir}
	if err := again.openLog(storeOf(t, WALStore), Options{RaftLog: hclog.NewNullLogger(), segmentSize: crashSegment}); api.CodeOf(err) != api.Corrupt || !strings.Contains(err.Error(), "entry 24 had been confirmed") {
		t.Errorf("a flipped bit in the last append: %v", err)
	}
}

// openRawLog opens only a log, with its fail-stop. It does not check that the
// log follows a snapshot: the crash tests compact without one.
func openRawLog(t testing.TB, dir string, kind LogStore) (*failStopLogs, *Stores) {
	t.Helper()
	s := &Stores{dir: dir}
	s.failStop = newFailStop(time.Minute, func() {}, func(err error) { t.Fatal(err) }) // on the test's goroutine
	if err := s.openFiles(storeOf(t, kind), Options{RaftLog: hclog.NewNullLogger(), segmentSize: crashSegment}); err != nil {
		t.Fatalf("open %s log after a crash: %v", kind, err)
	}
	return &failStopLogs{inner: s.rawLogs, failStop: s.failStop, path: dir, mark: unguarded()}, s
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
	testbed.NoErr(t, err)
	return files
}

// writeFiles makes the directory contain exactly these files.
func writeFiles(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for path := range filesOf(t, dir) {
		if files[path] == nil {
			testbed.NoErr(t, os.Remove(path))
		}
	}
	for path, text := range files {
		testbed.NoErr(t, os.WriteFile(path, text, 0o600))
	}
}
