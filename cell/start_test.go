package cell

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// storeEntry appends an entry with that data to a log.
func storeEntry(t *testing.T, s *disk.Stores, format []byte) {
	t.Helper()
	last := must(s.Logs().LastIndex())(t)
	var before raft.Log
	noErr(t, s.Logs().GetLog(last, &before))
	data := must(cbor.Marshal(map[int]any{1: before.Term, 3: []any{}, 99: "new"}))(t)
	if err := s.Logs().StoreLogs([]*raft.Log{{Index: last + 1, Term: before.Term, Type: raft.LogCommand, Data: append(format, data...)}}); err != nil {
		t.Fatal(err)
	}
}

// A replica that finds entries or snapshots of another version stops and says so: nothing is damaged, and another
// version of the program can read them. No version reads those from before the first release.
func TestDataOfAnotherVersion(t *testing.T) {
	newer := []string{"a newer version of Chubby wrote it", "Nothing is damaged"}
	for _, c := range []struct {
		name  string
		says  []string
		write func(t *testing.T, s *disk.Stores)
	}{
		{"entry with a new field", newer, func(t *testing.T, s *disk.Stores) { storeEntry(t, s, []byte{1}) }},
		{"entry of a new format", newer, func(t *testing.T, s *disk.Stores) { storeEntry(t, s, []byte{2}) }},
		{"entry of before the first release", []string{"before v0.1.0", "Bootstrap the cell anew"}, func(t *testing.T, s *disk.Stores) { storeEntry(t, s, nil) }},
		{"snapshot", newer, func(t *testing.T, s *disk.Stores) {
			last := must(s.Logs().LastIndex())(t)
			_, wire := raft.NewInmemTransport("r:1")
			sink := must(s.Snapshots().Create(1, last, 2, s.Configuration(), 1, wire))(t)
			state := raftfsm.NewState()
			state.Level = raftfsm.MaxLevel + 1
			must(state.WriteTo(sink))(t)
			noErr(t, sink.Close())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			network := memnet.New()
			cfg := Config{
				Cell: "local", ID: "r1", Members: []Member{{ID: "r1", Client: "c:1", Raft: "r:1"}}, Data: filepath.Join(t.TempDir(), "r1"), Bootstrap: true,
				ClientListener: network.Listen("c:1"), RaftListener: network.Listen("r:1"), Dial: network.Dialer("r:1"), Logger: slog.New(slog.DiscardHandler),
			}
			r, err := Start(t.Context(), cfg)
			noErr(t, err)
			testbed.Await(t, "a master", func() bool { return r.master.Load() != nil })
			noErr(t, r.Stop(t.Context()))
			s, err := disk.Open(cfg.Data, disk.LogStore(DefaultLogStore), disk.Options{Cell: "local", ID: "r1", Fatal: func(err error) { t.Error(err) }, Silence: func() {}, Logger: slog.New(slog.DiscardHandler)})
			noErr(t, err)
			c.write(t, s)
			noErr(t, s.Close())
			network = memnet.New()
			cfg.ClientListener, cfg.RaftListener = network.Listen("c:1"), network.Listen("r:1")
			if r, err = Start(t.Context(), cfg); err == nil {
				select {
				case <-r.Done():
					err = r.Err()
				case <-time.After(time.Minute):
					t.Fatal("it goes on")
				}
			}
			failIf(t, !errors.Is(err, ErrRefused) || strings.Contains(err.Error(), "panic"), "it ended with %v", err)
			for _, words := range c.says {
				failIf(t, !strings.Contains(err.Error(), words), "it ended with %v, and does not say %q", err, words)
			}
		})
	}
}

// A normal start logs no warning. A replica that cannot reach the others says
// so once a minute, with their ids, however often Raft does.
func TestLogOfALoneReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := map[string]*testbed.Lines{"r1": {}, "r2": {}, "r3": {}}
		replicas := startCell(t, 3, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(logs[cfg.ID], nil)) })
		testbed.Pass(time.Minute)
		for id, log := range logs {
			for _, line := range log.Take() {
				failIf(t, !strings.Contains(line, "level=INFO"), "a normal start: %s logs %s", id, line)
			}
		}
		for _, id := range []string{"r2", "r3"} {
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			_ = replicas[id].Stop(gone) // the error says that it did not drain, as intended
			<-replicas[id].Done()
		}
		testbed.Pass(10 * time.Second)
		logs["r1"].Take() // the lines about the end of its epoch, if it was the master
		const minutes = 10
		testbed.Pass(minutes * time.Minute)
		lines := logs["r1"].Take()
		if len(lines) < minutes-1 || len(lines) > minutes+1 {
			t.Errorf("in %d minutes alone r1 logged %d lines:\n%s", minutes, len(lines), strings.Join(lines, ""))
		}
		for _, line := range lines {
			if !strings.Contains(line, `level=WARN msg="replicas cannot be reached" replica=r1 event=peers_away peers="[r2 r3]"`) {
				t.Errorf("alone it logged %s", line)
			}
		}
	})
}

// Only an error that Raft returns before it has appended an entry means that the entry will never be in the log. For
// any other error, a master must not tell the client that its change was not made.
func TestWhatAnErrorOfTheLogMeans(t *testing.T) {
	for err, want := range map[error]api.Code{
		raft.ErrNotLeader:                    api.NotMaster,
		raft.ErrEnqueueTimeout:               api.NotMaster,
		raft.ErrLeadershipTransferInProgress: api.NotMaster,
		raft.ErrLeadershipLost:               api.Uncertain,
		raft.ErrRaftShutdown:                 api.Uncertain,
		errors.New("anything else"):          api.Uncertain,
	} {
		if got := api.CodeOf(appendError(err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// A stop ends in bounded time, even if a disk operation hangs, and reports it:
// the process that waits for it has to end.
func TestStopEndsThoughTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		r := &Replica{
			cfg: Config{ID: "r1", Data: "d"}, handing: make(chan struct{}, 1), epochsEnded: make(chan struct{}), done: make(chan struct{}),
			cancel: func(error) {}, clients: wire.NewServer(wire.Config{}),
		}
		r.logs, r.log = newLogQueue(slog.New(slog.DiscardHandler))
		close(r.epochsEnded)
		r.work.Go(func() { <-hangs })
		late := errors.New("it is late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, late)
		defer cancel()
		began, stopped := time.Now(), make(chan error, 1)
		go func() { stopped <- r.Stop(ctx) }()
		select {
		case err := <-stopped:
			if took := time.Since(began); !errors.Is(err, late) || took < 10*time.Second {
				t.Errorf("it stopped after %v: %v", took, err)
			}
		case <-time.After(time.Minute):
			t.Error("it does not return")
		}
		close(hangs)
		<-r.Done()
		report(t, r.Stop(t.Context()), "once it has stopped")
	})
}

// A stopping master that finds no replica to hand over to does not stay the leader while it waits
// for its clients: the others elect another.
func TestStopDoesNotKeepTheMastership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dial func(string, time.Duration) (net.Conn, error)
		replicas := startCell(t, 3, func(cfg *Config) {
			if cfg.ID == "r1" {
				dial = cfg.Dial
			}
		})
		was := masterOf(replicas)
		conn, err := grpc.NewClient("passthrough:///"+was+":client", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(_ context.Context, address string) (net.Conn, error) { return dial(address, time.Second) }))
		noErr(t, err)
		defer func() { _ = conn.Close() }()
		if _, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, pb.Cell_Locate_FullMethodName); err != nil { // sends no request
			t.Fatal(err)
		}
		if _, err := pb.NewCellClient(conn).Locate(t.Context(), &pb.LocateRequest{}); err != nil { // the replica has read the stream's beginning, too
			t.Fatal(err)
		}
		replicas[was].prober.Close() // so that no replica answers
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began, stopped := time.Now(), make(chan error, 1)
		go func() { stopped <- replicas[was].Stop(ctx) }()
		testbed.Await(t, "another master", func() bool { is := masterOf(replicas); return is != "" && is != was })
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the cell had no other master for %v", took)
		}
		report(t, <-stopped)
	})
}

// A replica does not end for what a slow disk takes, nor only after very many minutes.
func TestDiskStallHasBounds(t *testing.T) {
	cfg := Config{Cell: "local", ID: "r1", Data: "x", Members: []Member{{ID: "r1", Client: "c:1", Raft: "r:2"}}}
	if whole, err := cfg.complete(); err != nil || whole.DiskStall != DefaultDiskStall {
		t.Errorf("the default is %v, %v", whole.DiskStall, err)
	}
	for stall, ok := range map[time.Duration]bool{
		MinDiskStall: true, MinDiskStall - 1: false, MaxDiskStall: true, MaxDiskStall + 1: false, -1: false,
	} {
		cfg.DiskStall = stall
		if err := cfg.Check(); (err == nil) != ok {
			t.Errorf("%v: %v", stall, err)
		}
	}
}

// What is configured is what the watch over the disk goes by.
func TestDiskStallReachesTheStores(t *testing.T) {
	cfg := Config{Cell: "local", ID: "r1", Data: "x", Members: []Member{{ID: "r1", Client: "c:1", Raft: "r:2"}}, DiskStall: 7 * time.Minute}
	whole := must(cfg.complete())(t)
	r := &Replica{cfg: whole, log: slog.New(slog.DiscardHandler)}
	equal(t, r.storeOptions().Stall, cfg.DiskStall, "the stores are opened with %v")
}

// A replica that hangs in its disk is given up only after the watch over the disk has said why.
func TestStopOutlastsADiskThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Replica{cfg: Config{ID: "r1", Data: "x", DiskStall: MaxDiskStall}, done: make(chan struct{})}
		r.once.Do(func() {}) // what Stop does hangs
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if err, took := r.Stop(ctx), time.Since(began); err == nil || took <= MaxDiskStall {
			t.Errorf("after %v: %v; the disk may stall for %v", took, err, MaxDiskStall)
		}
	})
}
