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
	for _, kind := range LogStores() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
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
				if err := logs.StoreLog(crashEntry(next, uint64(1000+round))); err != nil {
					t.Fatal(err)
				}
				want = want.do(line)
				if err := want.matches(logs); err != nil {
					t.Fatalf("round %d, after the next append: %v", round, err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%s: %d operations acknowledged over %d kills", kind, done, crashRounds)
		})
	}
}

// killedChild runs a child on the log and kills it in the middle of its work.
// It returns the operations that the child acknowledged, and the one that it
// had begun.
func killedChild(t *testing.T, dir string, kind LogStore) (acked []string, inFlight string) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestLogSurvivesKill$", "-test.timeout=60s")
	child.Env = append(os.Environ(), crashEnv+"="+dir, crashKindEnv+"="+string(kind))
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
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
	first, err := logs.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	last, err := logs.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
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
	if err := do(); err != nil {
		t.Fatal(err)
	}
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
				if err := do(logs); err != nil {
					t.Fatal(err)
				}
				want = want.do(op)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
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
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
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
		if err := logs.StoreLogs(crashBatch(last-3, last, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := logs.DeleteRange(19, 20); err != nil { // these were deleted, and are not missed
		t.Fatal(err)
	}
	mustClose(t, s)
	logs, s = openRawLog(t, dir, WALStore)
	if last, err := logs.LastIndex(); err != nil || last != 18 {
		t.Fatalf("the log ends at %d, %v", last, err)
	}
	if err := logs.StoreLogs(crashBatch(19, 24, 2)); err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(name, newest, 0o600); err != nil {
		t.Fatal(err)
	}
	again := &Stores{dir: dir}
	if err := again.openLog(storeOf(t, WALStore), logOptions{logger: hclog.NewNullLogger(), segmentSize: crashSegment}); api.CodeOf(err) != api.Corrupt || !strings.Contains(err.Error(), "entry 24 had been confirmed") {
		t.Errorf("a flipped bit in the last append: %v", err)
	}
}
