package namespace_test

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"pgregory.net/rapid"
)

func (m *machine) Acquire(t *rapid.T) {
	ref := m.ref(t)
	by := namespace.Holder{
		Owner:     m.ownerOf(t, ref),
		Delay:     rapid.SampledFrom([]time.Duration{0, time.Second, 2 * time.Second, time.Minute, -1, time.Hour}).Draw(t, "delay"),
		Reason:    rapid.SampledFrom([]string{"", "to test"}).Draw(t, "reason"),
		SinceUnix: rapid.Int64Range(0, 9).Draw(t, "since"),
	}
	mode := rapid.SampledFrom([]api.LockMode{api.Exclusive, api.Shared, api.Shared, 0, 3}).Draw(t, "mode")
	var refused *api.Error
	got := m.do(t, func(w *world) outcome {
		g, err := w.tree.Acquire(ref, by, mode, w.drawGeneration)
		errors.As(err, &refused)
		return outcomeOf(g, err)
	})
	generation, code := m.twin.acquire(ref, by, mode, m.twinGeneration)
	m.expect(t, got, generation, code)
	if code == api.LockHeld {
		var holders []api.Holder
		for _, h := range m.twin.nodes[ref.Name].Holders {
			holders = append(holders, api.Holder{Session: h.Session})
		}
		if !slices.Equal(refused.Holders, holders) {
			t.Fatalf("held by %+v, says the error; want %+v", refused.Holders, holders)
		}
	}
}

func (m *machine) Release(t *rapid.T) {
	ref := m.ref(t)
	by := m.ownerOf(t, ref)
	generation := api.Generation(3)
	if n := m.twin.resolve(ref); n != nil && rapid.IntRange(0, 9).Draw(t, "wrong") > 0 {
		generation = n.Lock
	}
	got := m.do(t, func(w *world) outcome { return outcomeOf(w.tree.Release(ref, by, generation)) })
	want, code := m.twin.release(ref, by, generation)
	m.expect(t, got, want, code)
}

func (m *machine) DropSession(t *rapid.T) {
	session, failed := owner(t).Session, rapid.IntRange(0, 3).Draw(t, "failed") > 0
	got := m.do(t, func(w *world) outcome { return outcomeOf(w.tree.DropSession(session, failed, w.draw), nil) })
	m.expect(t, got, m.twin.dropSession(session, failed, m.twinDraw), api.OK)
}

func (m *machine) EndDelay(t *rapid.T) {
	name, id := rapid.SampledFrom(machineNames).Draw(t, "name"), uint64(3)
	if names := slices.Sorted(maps.Keys(m.twin.delays)); len(names) > 0 && rapid.IntRange(0, 3).Draw(t, "other") > 0 {
		name = rapid.SampledFrom(names).Draw(t, "delayed")
		id = m.twin.delays[name].ID
	}
	got := m.do(t, func(w *world) outcome { return outcomeOf(w.tree.EndDelay(name, id), nil) })
	m.expect(t, got, m.twin.endDelay(name, id), api.OK)
}
