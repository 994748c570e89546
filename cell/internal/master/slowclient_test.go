package master

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// A change waits for several clients. The master cuts off those that got the
// invalidation long ago, and not those that got it just now.
func TestOnlyWhoIsLateIsCutOff(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		m.coherence.slowClient = 2 * time.Second
		author, late, prompt := m.client(t, 1), m.client(t, 2), m.client(t, 3)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		late.open(t, "/ls/local/f", api.MustExist)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := <-author.write(ctx, f); !errors.Is(err, api.Unavailable) {
			t.Fatal(err)
		}
		prompt.open(t, "/ls/local/f", api.MustExist)
		time.Sleep(5 * time.Second)
		wrote := author.write(t.Context(), f)
		time.Sleep(time.Second)
		synctest.Wait()
		alive := func(c *soloClient) bool {
			m.epoch.mu.Lock()
			defer m.epoch.mu.Unlock()
			return m.tables.leases.Alive(c.who.Session)
		}
		if alive(late) || !alive(prompt) {
			t.Errorf("late is alive: %v; prompt is alive: %v", alive(late), alive(prompt))
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if alive(prompt) {
			t.Error("it has delayed the change for too long, and is not cut off")
		}
		late.acknowledge(t, late.hear(t))
		prompt.acknowledge(t, prompt.hear(t))
		if err := <-wrote; err != nil {
			t.Error(err)
		}
	})
}

// Clients that delay the removal of a node are cut off at the same time, and not one after the
// other, whichever of the names that the removal touches they cache.
func TestLateForARemovalAreCutOffTogether(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		m.coherence.slowClient = 2 * time.Second
		owner, readers := m.client(t, 1), []*soloClient{m.client(t, 2), m.client(t, 3)}
		e := owner.openEphemeral(t, "/ls/local/e")
		for i, name := range []api.Name{"/e", ""} {
			if !m.coherence.registerReader(readers[i].who.Session, name) {
				t.Fatal("it may not cache")
			}
		}
		if err := m.Files.Close(t.Context(), owner.mutation(), e); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		for i, r := range readers {
			if m.tables.leases.Alive(r.who.Session) {
				t.Errorf("reader %d has delayed the removal for too long, and is not cut off", i)
			}
		}
	})
}

// Searching for clients that delay a change for too long takes one step for each client and name.
// Naming them takes one step for each client.
func TestLookForLateClientsLetsOthersIn(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		const clients = 20
		m.coherence.slowClient = 2 * time.Second
		names := []api.Name{"/a", "/b"}
		for i := range clients {
			if !m.coherence.registerReader(m.client(t, byte(i+1)).who.Session, names...) {
				t.Fatal("it may not cache")
			}
		}
		var holds atomic.Int32
		m.epoch.mu.Lock()
		ch := m.coherence.beginChange(0, names)
		m.epoch.mu.maxStepsOverride = 1
		m.epoch.mu.held = func(time.Duration) { holds.Add(1) }
		m.epoch.mu.Unlock()
		holds.Store(0)
		m.coherence.cutOff(ch, names)
		if n := int(holds.Load()); n < clients*len(names) {
			t.Errorf("%d holds of the mutex, want one for each of %d clients and of %d names", n, clients, len(names))
		}
		holds.Store(0)
		if who := m.coherence.laggards(ch); !strings.HasSuffix(who, "and 15 more") {
			t.Errorf("%s: want 5 of %d clients", who, clients)
		}
		if n := int(holds.Load()); n < clients {
			t.Errorf("%d holds of the mutex, want one for each of %d clients", n, clients)
		}
		m.Master.coherence.endChange(ch)
	})
}
