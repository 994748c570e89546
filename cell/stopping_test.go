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
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("once it has stopped: %v", err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// storeEntry appends an entry with that data to a log.
func storeEntry(t *testing.T, s *disk.Stores, format []byte) {
	t.Helper()
	last, err := s.Logs().LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	var before raft.Log
	if err := s.Logs().GetLog(last, &before); err != nil {
		t.Fatal(err)
	}
	data, err := cbor.Marshal(map[int]any{1: before.Term, 3: []any{}, 99: "new"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Logs().StoreLogs([]*raft.Log{{Index: last + 1, Term: before.Term, Type: raft.LogCommand, Data: append(format, data...)}}); err != nil {
		t.Fatal(err)
	}
}

// A replica that finds entries or snapshots of another version stops and says so: nothing is
// damaged, and another version of the program can read them. No version reads those from before the
// first release.
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
			last, err := s.Logs().LastIndex()
			if err != nil {
				t.Fatal(err)
			}
			_, wire := raft.NewInmemTransport("r:1")
			sink, err := s.Snapshots().Create(1, last, 2, s.Configuration(), 1, wire)
			if err != nil {
				t.Fatal(err)
			}
			state := raftfsm.NewState()
			state.Level = raftfsm.MaxLevel + 1
			if _, err := state.WriteTo(sink); err != nil {
				t.Fatal(err)
			}
			if err := sink.Close(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			network := memnet.New()
			cfg := Config{
				Cell: "local", ID: "r1", Members: []Member{{ID: "r1", Client: "c:1", Raft: "r:1"}}, Data: filepath.Join(t.TempDir(), "r1"), Bootstrap: true,
				ClientListener: network.Listen("c:1"), RaftListener: network.Listen("r:1"), Dial: network.Dialer("r:1"), Logger: slog.New(slog.DiscardHandler),
			}
			r, err := Start(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			testbed.Await(t, "a master", func() bool { return r.master.Load() != nil })
			if err := r.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			s, err := disk.Open(cfg.Data, disk.LogStore(DefaultLogStore), disk.Options{Cell: "local", ID: "r1", Fatal: func(err error) { t.Error(err) }, Silence: func() {}, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			c.write(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
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
			if !errors.Is(err, ErrRefused) || strings.Contains(err.Error(), "panic") {
				t.Errorf("it ended with %v", err)
			}
			for _, words := range c.says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("it ended with %v, and does not say %q", err, words)
				}
			}
		})
	}
}
