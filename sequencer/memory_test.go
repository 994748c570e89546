package sequencer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

// memory is a Store without a disk, whose saves can be delayed or fail.
type memory struct {
	mu     sync.Mutex // guards saved
	saved  map[api.Path]sequencer.Sequencer
	before func(context.Context, sequencer.Sequencer) error // called in Save first, if set
}

func (m *memory) Load(context.Context) ([]sequencer.Sequencer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []sequencer.Sequencer
	for _, s := range m.saved {
		all = append(all, s)
	}
	return all, nil
}

func (m *memory) Save(ctx context.Context, s sequencer.Sequencer) error {
	if m.before != nil {
		if err := m.before(ctx, s); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.saved == nil {
		m.saved = map[api.Path]sequencer.Sequencer{}
	}
	m.saved[s.Path] = s
	return nil
}

func newGuard(t testing.TB, config sequencer.GuardConfig) *sequencer.Guard {
	t.Helper()
	if config.Store == nil {
		config.Store = &memory{}
	}
	if len(config.Locks) == 0 && config.Prefix.IsZero() {
		config.Locks = []api.Path{primary}
	}
	guard, err := sequencer.NewGuard(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

func openStore(t testing.TB, name string) *sequencer.FileStore {
	t.Helper()
	store, err := sequencer.OpenFileStore(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func accept(t testing.TB, guard *sequencer.Guard, s sequencer.Sequencer) {
	t.Helper()
	if got, err := guard.Check(t.Context(), s.String()); err != nil || got != s {
		t.Fatalf("Check(%s) = %+v, %v; want it accepted", s, got, err)
	}
}

// refuse checks that s is refused with that code and that the message contains
// all of want.
func refuse(t testing.TB, guard *sequencer.Guard, s sequencer.Sequencer, code api.Code, want ...string) {
	t.Helper()
	_, err := guard.Check(t.Context(), s.String())
	var told *api.Error
	if !errors.As(err, &told) || told.Code != code {
		t.Fatalf("Check(%s): %v; want %v", s, err, code)
	}
	for _, part := range want {
		if !strings.Contains(told.Message, part) {
			t.Fatalf("Check(%s) says %q; want it to hold %q", s, told.Message, part)
		}
	}
}
