package disk

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// TestStoreErrorIsFatal: the first error of any operation is reported once,
// with the file, the operation and advice. No operation is tried after it, and
// the log and the votes never return to their caller.
func TestStoreErrorIsFatal(t *testing.T) {
	entry := []*raft.Log{{Index: 1, Term: 1, Data: []byte("x")}, {Index: 2, Term: 1}}
	var l *failStopLogs
	var v *failStopVotes
	var s *failStopSnapshots
	create := func() (raft.SnapshotSink, error) { return s.Create(1, 1, 1, raft.Configuration{}, 1, nil) }
	for op, c := range map[string]struct {
		do       func() error
		file     string
		returned bool // the error is returned
	}{
		"FirstIndex": {func() error { return testbed.ErrOf(l.FirstIndex()) }, "log.db", false},
		"LastIndex":  {func() error { return testbed.ErrOf(l.LastIndex()) }, "log.db", false},
		"GetLog":     {func() error { return l.GetLog(1, &raft.Log{}) }, "read log entry 1 in /data/log.db", false},
		"StoreLogs":  {func() error { return l.StoreLogs(entry) }, "append log entries 1 to 2 in /data/log.db", false},
		// an empty log would ignore the deletion
		"DeleteRange":      {func() error { return cmp.Or(l.StoreLogs(entry), l.DeleteRange(1, 2)) }, "log.db", false},
		"Set CurrentTerm":  {func() error { return v.SetUint64([]byte("CurrentTerm"), 1) }, "write CurrentTerm in /data/votes.db", false},
		"Set LastVoteCand": {func() error { return v.Set([]byte("LastVoteCand"), nil) }, "votes.db", false},
		"Get CurrentTerm":  {func() error { return testbed.ErrOf(v.GetUint64([]byte("CurrentTerm"))) }, "votes.db", false},
		"Get LastVoteCand": {func() error { return testbed.ErrOf(v.Get([]byte("LastVoteCand"))) }, "votes.db", false},
		"List":             {func() error { return testbed.ErrOf(s.List()) }, "snapshots", true},
		"Open":             {func() error { _, _, err := s.Open("x"); return err }, "snapshots", true},
		"Create":           {func() error { return testbed.ErrOf(create()) }, "snapshots", true},
		"Write":            {func() error { return testbed.ErrOf(testbed.Must(create())(t).Write([]byte("x"))) }, "snapshots", true},
		"Close":            {func() error { return testbed.Must(create())(t).Close() }, "snapshots", true},
	} {
		for cause, advice := range map[error]string{
			syscall.ENOSPC:                     "disk is full",
			syscall.EIO:                        "do not trust it",
			syscall.EROFS:                      "read-only",
			syscall.EACCES:                     "permission",
			errors.New("something else"):       "see the cause",
			api.Errorf(api.Corrupt, "bit rot"): "majority",
		} {
			inner := newFaultyStore()
			var told chan error
			l, v, s, told = failStopTrio(inner)
			began := 0
			inner.before = func(name string) error {
				if name != op {
					return nil
				}
				began++
				return cause
			}
			returned := false
			err := l.failStop.callOnGoroutine(func() error {
				err := c.do()
				returned = true
				return err
			})
			if returned != c.returned {
				t.Errorf("%s: %v: returned %v, want %v", op, cause, returned, c.returned)
			}
			if !errors.Is(err, cause) || !strings.Contains(err.Error(), c.file) || !strings.Contains(err.Error(), advice) {
				t.Errorf("%s: %v: %q, want %q and %q in it", op, cause, err, c.file, advice)
			}
			if err := l.failStop.callOnGoroutine(func() error { return l.StoreLogs(entry) }); !errors.Is(err, cause) {
				t.Errorf("%s: %v: a write after it: %v", op, cause, err)
			}
			if began > 1 {
				t.Errorf("%s: %v: attempted again", op, cause)
			}
			if len(told) != 1 || !errors.Is(<-told, cause) {
				t.Errorf("%s: %v: fatal was not called exactly once", op, cause)
			}
		}
	}
}

// TestStorePanicIsFatal: bbolt reports a damaged page by a panic.
func TestStorePanicIsFatal(t *testing.T) {
	inner := newFaultyStore()
	l, _, _, told := failStopTrio(inner)
	inner.before = func(string) error { panic("page 7: bad magic") }
	if err := l.failStop.callOnGoroutine(func() error { return l.GetLog(1, &raft.Log{}) }); api.CodeOf(err) != api.Corrupt {
		t.Errorf("%v, want Corrupt", err)
	}
	if err := <-told; !strings.Contains(err.Error(), "bad magic") {
		t.Errorf("fatal was called with %v", err)
	}
}

// TestLogMonotonic: after it has installed a snapshot, Raft empties a log that
// is monotonic. So both wrappers must pass on what the store says.
func TestLogMonotonic(t *testing.T) {
	l, _, _, _ := failStopTrio(newFaultyStore())
	cache := testbed.Must(raft.NewLogCache(10, l))(t)
	if !raft.LogStore(cache).(raft.MonotonicLogStore).IsMonotonic() {
		t.Error("raft hears false")
	}
}

// TestWatchdog: an operation that does not return first silences the replica
// and then ends it, after the limit and not before. If the operation returns
// later, its caller does not continue.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFaultyStore()
		l, v, s, told := failStopTrio(inner)
		disk := make(chan struct{})
		inner.before = func(string) error {
			<-disk
			return syscall.EIO
		}
		began := time.Now()
		returned := false
		var work sync.WaitGroup
		work.Go(func() {
			_ = l.failStop.callOnGoroutine(func() error {
				err := l.StoreLogs([]*raft.Log{{Index: 1}})
				returned = true
				return err
			})
		})
		if first := <-told; !errors.Is(first, errSilent) {
			t.Errorf("first came %v, want silence", first)
		}
		if took := time.Since(began); took != maxStoreWait {
			t.Errorf("noticed after %v, want %v", took, maxStoreWait)
		}
		if err := <-told; !strings.Contains(err.Error(), "the disk stalled") || !strings.Contains(err.Error(), "append log entry 1 in /data/log.db") {
			t.Errorf("fatal was called with %v", err)
		}
		if l.failStop.active.Load() != 1 {
			t.Error("the hanging operation does not count as active: its file would be closed")
		}
		if err := v.failStop.callOnGoroutine(func() error { return v.Set([]byte("LastVoteCand"), nil) }); err == nil {
			t.Error("a vote was written to a stalled disk")
		}
		close(disk)
		work.Wait()
		if returned {
			t.Error("the caller went on after the replica was declared dead")
		}
		if _, err := s.List(); err == nil {
			t.Error("snapshots go on after the replica was declared dead")
		}
		testbed.Pass(time.Minute)
		if len(told) != 0 {
			t.Errorf("fatal was called again: %v", <-told)
		}
	})
}

// faultyReplica returns the stores of a replica over a faultyStore, and a configuration of Raft.
func faultyReplica(t *testing.T) (*faultyStore, *Stores, *raft.Config, chan error) {
	t.Helper()
	inner := newFaultyStore()
	l, v, s, told := failStopTrio(inner)
	conf := raft.DefaultConfig()
	conf.LocalID = "r1"
	conf.Logger = hclog.NewNullLogger()
	p := &pendingLogs{failStopLogs: l}
	v.drain = p.drain
	st := &Stores{logs: p, pending: p, stable: v, snapshots: s, failStop: l.failStop, rawLogs: inner, rawVotes: inner, rawSnaps: inner, who: preparedAlone(t)}
	return inner, st, conf, told
}

// TestStoreErrorStopsRaftQuietly: whichever store fails, Raft ends without a
// panic, acknowledges nothing more, and can be shut down.
func TestStoreErrorStopsRaftQuietly(t *testing.T) {
	for _, op := range []string{"StoreLogs", "Set CurrentTerm", "Set LastVoteTerm", "Set LastVoteCand", "GetLog", "Get LastVoteTerm"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner, st, conf, told := faultyReplica(t)
				_, wire := raft.NewInmemTransport("a")
				testbed.NoErr(t, st.Bootstrap(conf, wire))
				words := &testbed.Words{}
				r := testbed.Must(st.StartRaft(conf, words, wire))(t)
				testbed.Await(t, "a leader", func() bool { return r.State() == raft.Leader })
				testbed.NoErr(t, r.Apply([]byte("fine"), 5*time.Second).Error())
				inner.before = func(name string) error {
					if name == op {
						return syscall.EIO
					}
					return nil
				}
				write := provoke(r, wire)
				if err := <-told; !errors.Is(err, syscall.EIO) {
					t.Errorf("fatal was called with %v", err)
				}
				if err := r.Apply([]byte("too late"), time.Second).Error(); err == nil {
					t.Error("a write was acknowledged after the store had failed")
				}
				err := write.Error()
				if ended, _ := write.Response().(error); err == nil && op == "StoreLogs" && !errors.Is(ended, ErrEnded) {
					t.Errorf("a write that failed was answered with %v", write.Response())
				}
				testbed.Report(t, r.Shutdown().Error())
			})
		})
	}
}

// provoke makes Raft write its log, raise its term, and read its vote. It returns the write.
func provoke(r *raft.Raft, wire *raft.InmemTransport) raft.ApplyFuture {
	write := r.Apply([]byte("write"), time.Second)
	peer := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("r1"), Addr: []byte("b")}
	_, other := raft.NewInmemTransport("b")
	other.Connect("a", wire)
	_ = other.AppendEntries("r1", "a", &raft.AppendEntriesRequest{RPCHeader: peer, Term: r.CurrentTerm() + 1, PrevLogEntry: 1, PrevLogTerm: 1}, &raft.AppendEntriesResponse{}) // may fail, as intended
	_ = other.RequestVote("r1", "a", &raft.RequestVoteRequest{RPCHeader: peer, Term: r.CurrentTerm() + 5, LastLogIndex: 100, LastLogTerm: 100, LeadershipTransfer: true}, &raft.RequestVoteResponse{})
	_ = other.Close()
	return write
}

// TestStartReportsStoreError: a failure while Raft starts is an error of the
// start.
func TestStartReportsStoreError(t *testing.T) {
	inner, st, conf, _ := faultyReplica(t)
	_, wire := raft.NewInmemTransport("a")
	inner.before = func(name string) error {
		if name == "Set CurrentTerm" {
			return syscall.ENOSPC
		}
		return nil
	}
	if r, err := st.StartRaft(conf, &testbed.Words{}, wire); r != nil || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("startRaft: %v, %v", r, err)
	}
	if err := st.Bootstrap(conf, wire); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("bootstrap: %v", err)
	}
}

// pausedEnv marks the process that TestStoppedProcessIsNoStalledDisk stops.
const pausedEnv = "CHUBBY_TEST_PAUSED"

// TestStoppedProcessIsNoStalledDisk: a replica is stopped during an operation on its disk, for
// longer than an operation may take. It continues if the operation has returned meanwhile.
func TestStoppedProcessIsNoStalledDisk(t *testing.T) {
	const rounds, limit = 2, time.Second // a busy machine takes a while to stop it
	if os.Getenv(pausedEnv) != "" {
		pausedChild(rounds, limit)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=60s")
	child.Env = append(os.Environ(), pausedEnv+"=1")
	disk, err := child.StdinPipe()
	out, err2 := child.StdoutPipe()
	testbed.NoErr(t, errors.Join(err, err2, child.Start()))
	defer func() { _ = errors.Join(child.Process.Kill(), child.Wait()) }() // it has ended, or failed
	lines := bufio.NewScanner(out)
	for round := range rounds {
		if !lines.Scan() || lines.Text() != "begun" {
			t.Fatalf("round %d: %q", round, lines.Text())
		}
		testbed.NoErr(t, child.Process.Signal(syscall.SIGSTOP))
		<-time.After(2 * limit)
		_, err := disk.Write([]byte{1})
		testbed.NoErr(t, errors.Join(err, child.Process.Signal(syscall.SIGCONT)))
		if !lines.Scan() || lines.Text() != "well" {
			t.Fatalf("round %d: %q", round, lines.Text())
		}
	}
}

// pausedChild does operations that last until a byte can be read.
func pausedChild(rounds int, limit time.Duration) {
	g := newFailStop(limit, func() {}, func(err error) { fmt.Println("it ended:", err) })
	for range rounds {
		err := g.attempt(storeOp{verb: "append", path: "/data/log.db"}, 1, nil, func() error {
			fmt.Println("begun")
			_, err := os.Stdin.Read(make([]byte, 1))
			return err
		})
		if err == nil {
			fmt.Println("well")
		}
	}
}

// The watch over the log and the votes goes by what the stores were opened with.
func TestWatchdogGoesByTheOptions(t *testing.T) {
	for stall, want := range map[time.Duration]time.Duration{0: maxStoreWait, 7 * time.Minute: 7 * time.Minute} {
		opts := testStoreOptions()
		opts.Stall = stall
		s := testbed.Must(Open(t.TempDir(), BoltStore, opts))(t)
		if got := s.failStop.stall; got != want {
			t.Errorf("opened with %v, the limit is %v, want %v", stall, got, want)
		}
		mustClose(t, s)
	}
}

// misdirectedStore returns entry 1 for every index, as if the disk had written it everywhere.
type misdirectedStore struct{ *faultyStore }

func (s misdirectedStore) GetLog(_ uint64, log *raft.Log) error { return s.memory.GetLog(1, log) }

// A whole entry, with a correct checksum, in the wrong place.
func TestLogInAnothersPlace(t *testing.T) {
	inner := newFaultyStore()
	l, _, _, _ := failStopTrio(inner)
	testbed.NoErr(t, l.StoreLogs([]*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1}}))
	l.inner = misdirectedStore{inner}
	if err := l.failStop.callOnGoroutine(func() error { return l.GetLog(2, &raft.Log{}) }); api.CodeOf(err) != api.Corrupt {
		t.Errorf("%v, want Corrupt", err)
	}
}
