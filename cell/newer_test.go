package cell

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"
)

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
