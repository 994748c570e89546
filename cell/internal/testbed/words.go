package testbed

import (
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// Voters is the Raft configuration of a cell, from the addresses of its members by ID.
func Voters(members map[string]string) raft.Configuration {
	var c raft.Configuration
	for id, address := range members {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(address)})
	}
	slices.SortFunc(c.Servers, func(a, b raft.Server) int { return int(a.ID[1]) - int(b.ID[1]) })
	return c
}

// Words is a state machine that keeps every command. It is for any goroutine.
type Words struct {
	mu    sync.Mutex // guards words
	words []string
}

// Apply implements raft.FSM.
func (m *Words) Apply(l *raft.Log) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.words = append(m.words, string(l.Data))
	return nil
}

// All returns the commands that were applied, in their order.
func (m *Words) All() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.words)
}

// Snapshot implements raft.FSM: it fails.
func (m *Words) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("no snapshots") }

// Restore implements raft.FSM: there is nothing to restore.
func (m *Words) Restore(io.ReadCloser) error { return nil }
