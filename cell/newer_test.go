package cell

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"
)

// A replica that finds what a newer version wrote, in its log or its snapshots,
// stops with words that are true: nothing is damaged, and another version of the
// program is what helps.
func TestDataOfANewerVersion(t *testing.T) {
	for _, c := range []struct {
		name  string
		write func(t *testing.T, s *disk.Stores)
	}{
		{"entry", func(t *testing.T, s *disk.Stores) {
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
			if err := s.Logs().StoreLogs([]*raft.Log{{Index: last + 1, Term: before.Term, Type: raft.LogCommand, Data: data}}); err != nil {
				t.Fatal(err)
			}
		}},
		{"snapshot", func(t *testing.T, s *disk.Stores) {
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
			network := testbed.NewNetwork()
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
			network = testbed.NewNetwork()
			cfg.ClientListener, cfg.RaftListener = network.Listen("c:1"), network.Listen("r:1")
			if r, err = Start(t.Context(), cfg); err == nil {
				select {
				case <-r.Done():
					err = r.Err()
				case <-time.After(time.Minute):
					t.Fatal("it goes on")
				}
			}
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "a newer version of Chubby wrote it") || !strings.Contains(err.Error(), "Nothing is damaged") || strings.Contains(err.Error(), "panic") {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
