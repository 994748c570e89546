package cell

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/peer"
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
	noErr(t, s.Logs().StoreLogs([]*raft.Log{{Index: last + 1, Term: before.Term, Type: raft.LogCommand, Data: append(format, data...)}}))
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
			r := must(Start(t.Context(), cfg))(t)
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
		testbed.Pass(20 * time.Second)
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
		const minutes = 5
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
		disk.ErrEnded:                        api.Uncertain,
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
		is := &mastership{member: &member{cfg: Config{ID: "r1", Data: "d"}}}
		r := &Replica{
			mastership: is, handOvers: &handOvers{mastership: is, handing: make(chan struct{}, 1)}, epochs: &epochs{ended: make(chan struct{})},
			done: make(chan struct{}), cancel: func(error) {}, ports: ports{clients: wire.NewServer(wire.Config{})},
		}
		r.logs, r.log = newLogQueue(slog.New(slog.DiscardHandler))
		close(r.epochs.ended)
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
		noErr(t, errOf(conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, pb.Cell_Locate_FullMethodName))) // sends no request
		noErr(t, errOf(pb.NewCellClient(conn).Locate(t.Context(), &pb.LocateRequest{})))                                   // the replica has read the stream's beginning, too
		replicas[was].prober.Close()                                                                                       // so that no replica answers
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

// A replica does not end for what a slow disk takes, nor only after very many minutes. What is configured is what the watch over the
// disk goes by.
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
		equal(t, (&Replica{mastership: &mastership{member: &member{cfg: cfg, log: slog.New(slog.DiscardHandler)}}}).storeOptions().Stall, stall, "the stores are opened with %v")
	}
}

// A replica that hangs in its disk is given up only after the watch over the disk has said why.
func TestStopOutlastsADiskThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Replica{mastership: &mastership{member: &member{cfg: Config{ID: "r1", Data: "x", DiskStall: MaxDiskStall}}}, done: make(chan struct{})}
		r.once.Do(func() {}) // what Stop does hangs
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if err, took := r.Stop(ctx), time.Since(began); err == nil || took <= MaxDiskStall {
			t.Errorf("after %v: %v; the disk may stall for %v", took, err, MaxDiskStall)
		}
	})
}

// TestDivergenceIsNoticed: without any request, both sides notice that a
// replica applied another entry than the others, and it stops.
func TestDivergenceIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := startCell(t, 3)
		testbed.Pass(2 * compareEvery)
		for id, r := range replicas {
			if n := len(r.checks.comparison.Differing()); n != 0 {
				t.Errorf("%s differs from %d replicas", id, n)
			}
		}
		at := replicas["r1"].fsm.State().Applied
		for id, r := range replicas {
			for other := range replicas {
				if held := r.passport.HeldBy(other); other != id && held < at {
					t.Errorf("%s remembers that %s held %d, want %d", id, other, held, at)
				}
			}
		}
		for id, r := range replicas {
			wall := int64(0)
			if id == "r2" {
				wall = 1 // of another second
			}
			data := voidEntry(t, wall)
			if err, failed := r.fsm.Apply(&raft.Log{Index: at + 1, Term: 9, Type: raft.LogCommand, Data: data}).(error); failed {
				t.Fatal(err)
			}
		}
		testbed.Pass(2 * compareEvery)
		for id, want := range map[string]int{"r1": 1, "r2": 2, "r3": 1} {
			if n := len(replicas[id].checks.comparison.Differing()); n != want {
				t.Errorf("%s sees %d replicas that differ, want %d", id, n, want)
			}
		}
		testbed.Pass(30 * time.Second) // a check point is made at once
		for id, r := range replicas {
			if contradicted := r.Err() != nil; contradicted != (id == "r2") {
				t.Errorf("%s: %v", id, r.Err())
			}
		}
	})
}

// voidEntry is an entry of no epoch and of that second, so that its command does nothing.
func voidEntry(t *testing.T, wall int64) []byte {
	t.Helper()
	command := must(raftfsm.Command{RaiseLease: &raftfsm.RaiseLease{}}.Encode(raftfsm.MaxLevel))(t)
	return raftfsm.JoinEntry(0, wall, []raftfsm.Encoded{command})
}

// hasCheckPoint has the master make a check point, and waits until all have heard of it.
func hasCheckPoint(replicas map[string]*Replica) {
	replicas[masterOf(replicas)].master.Load().Inspector.CheckPoints.Soon()
	testbed.Pass(4 * compareEvery) // and until another one can follow it at once
}

// Before a replica stops because of what it was told, the others have heard from it that it differs. They name it in their warnings.
// The check point comes at each time between two looks.
func TestWhoIsContradictedTellsTheOthers(t *testing.T) {
	for phase := time.Duration(0); phase < compareEvery; phase += time.Second {
		synctest.Test(t, func(t *testing.T) {
			replicas := startCell(t, 3, func(cfg *Config) { // in the bubble's time: none asks at the same time as another
				time.Sleep(map[string]time.Duration{"r1": time.Second, "r2": 2500 * time.Millisecond, "r3": 4 * time.Second}[cfg.ID])
			})
			hasCheckPoint(replicas)
			wrong := "r1"
			if replicas[wrong].master.Load() != nil { // a master reads what is damaged here
				wrong = "r2"
			}
			testbed.Pass(phase)
			damage(t, replicas[wrong])
			replicas[masterOf(replicas)].master.Load().Inspector.CheckPoints.Soon()
			for seconds := 0; replicas[wrong].Err() == nil; seconds++ {
				replicas[wrong].checks.askForChecks(t.Context()) // as a master does all the time, to prove that it is the master
				if testbed.Pass(time.Second); seconds > 60 {
					t.Fatal("it does not stop")
				}
			}
			<-replicas[wrong].Done()
			for id, r := range replicas {
				if got := r.checks.comparison.Differing(); id != wrong && !slices.Equal(got, []string{wrong}) {
					t.Errorf("%s has heard of a difference from %v", id, got)
				}
			}
		})
	}
}

// damage changes a bit of the state in the memory of a replica, as a faulty module of it would: no entry of the log says so.
func damage(t *testing.T, r *Replica) {
	t.Helper()
	if r.checks.comparison.Own().Index == 0 { // it also waits for who has read the state to hash it
		t.Fatal("there was no check point")
	}
	r.fsm.State().Secret[0] ^= 1      // of no other replica, and of all later states of this one
	noErr(t, errOf(r.fsm.Snapshot())) // waits for the lock under which the next check point is applied
}

// A replica that may be about to stop contradicts nobody: of three, no two stop because of each other. What was heard before does not
// count; who is not contradicted when it asks again goes on, and contradicts as before.
func TestWhoMayLeaveContradictsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := startCell(t, 3)
		hasCheckPoint(replicas)
		r1, r2 := replicas["r1"], replicas["r2"]
		own, others := r1.checks.comparison.Checks()
		if own.Index == 0 || others["r2"] != own || others["r3"] != own {
			t.Fatalf("after a check point the checks are %+v and %+v", own, others)
		}
		own.Sum ^= 1
		if by, _ := peer.Contradicted(own, others, r1.voters()); len(by) != 2 {
			t.Fatalf("contradicted by %v", by)
		}
		r2.checks.leaving.Store(true)
		if r1.checks.stopIfContradicted(t.Context(), own) || r1.Err() != nil || r1.checks.leaving.Load() {
			t.Fatalf("it stops because of one that may be leaving: %v", r1.Err())
		}
		r2.checks.leaving.Store(false)
		failIf(t, !r1.checks.stopIfContradicted(t.Context(), own) || r1.Err() == nil || !r1.checks.leaving.Load(), "it does not stop")
		<-r1.Done()
	})
}
