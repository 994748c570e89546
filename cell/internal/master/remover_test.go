package master

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// ephemerals opens that many ephemeral nodes in a session and returns its id.
func ephemerals(t *testing.T, s *raftfsm.State, owner string, names ...api.Name) api.SessionID {
	t.Helper()
	r := &request{session: with(t, s, cachingSessionOf(owner))[0].Session}
	for _, name := range names {
		with(t, s, raftfsm.Command{Open: &raftfsm.Open{Mutation: r.mutation(), Name: name, Create: api.MustCreate, Kind: api.File, Ephemeral: true}})
	}
	return r.session
}

// A client that does not drop its cache delays only the removal of the nodes in
// it: all other nodes that died with them are removed, and can be cached again,
// before that.
func TestSlowCacheDelaysItsNodesOnly(t *testing.T) {
	t.Run("one", func(t *testing.T) { slowCache(t, "/d/007") })
	t.Run("the first", func(t *testing.T) {
		var first []api.Name
		for i := range 2*beginAtOnce + 1 {
			first = append(first, api.Name(fmt.Sprintf("/d/%03d", i)))
		}
		slowCache(t, first...)
	})
}

// slowCache tries it with those nodes in the client's cache.
func slowCache(t *testing.T, cached ...api.Name) {
	const nodes = 3 * beginAtOnce
	var names []api.Name
	for i := range nodes {
		names = append(names, api.Name(fmt.Sprintf("/d/%03d", i)))
	}
	var owner api.SessionID
	inSolo(t, func(s *raftfsm.State) {
		r := &request{session: with(t, s, cachingSessionOf("maker"))[0].Session}
		with(t, s, raftfsm.Command{Open: &raftfsm.Open{Mutation: r.mutation(), Name: "/d", Create: api.MustCreate, Kind: api.Directory}})
		owner = ephemerals(t, s, "owner", names...)
		with(t, s, raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: r.session}}}})
	}, func(t *testing.T, m *soloMaster) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		good := m.client(t, 1)
		good.keepAlive(ctx)
		slow := m.client(t, 2)
		if !m.coherence.registerReader(slow.who.Session, cached...) {
			t.Fatal("the client cannot cache the nodes")
		}
		if err := m.Sessions.endStopped(t.Context(), raftfsm.End{Session: owner, Reason: api.ByClose}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := m.epoch.state().Tree.Counts().Nodes; n != 4+len(cached) {
			t.Errorf("%d nodes are left after a second; want the root, /acl and its list, /d, and the %d in the client's cache", n, len(cached))
		}
		if !m.coherence.registerReader(good.who.Session, "/d/767") {
			t.Error("a removed node's name cannot be cached, because another node is not removed")
		}
		time.Sleep(13 * time.Second) // the slow client's lease
		synctest.Wait()
		if n := m.epoch.state().Tree.Counts().Nodes; n != 4 {
			t.Errorf("%d nodes are left after the lease of the client that had one in its cache; want 4", n)
		}
	})
}

// A removal that could not be committed is repeated.
func TestRemovalIsMadeAgain(t *testing.T) {
	var owner api.SessionID
	inSolo(t, func(s *raftfsm.State) { owner = ephemerals(t, s, "owner", "/e") }, func(t *testing.T, m *soloMaster) {
		l := defaultLimits()
		l.pending = 0 // the proposer accepts nothing
		refuse := func([]byte) { m.limit(l) }
		m.wrote.Store(&refuse) // beginning with the end of the session
		if err := m.Sessions.endStopped(t.Context(), raftfsm.End{Session: owner, Reason: api.ByClose}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, there := m.epoch.state().Tree.Get("/e"); !there {
			t.Fatal("the node was removed although nothing could be committed")
		}
		m.wrote.Store(nil)
		m.limit(defaultLimits())
		time.Sleep(time.Second)
		if _, there := m.epoch.state().Tree.Get("/e"); there {
			t.Error("the node is still there after a second in which it could have been removed")
		}
	})
}

// A node that dies while clients have not acknowledged the fail-over is removed
// after that: any client may have cached it under the earlier master.
func TestRemovalWaitsForTheFailOver(t *testing.T) {
	var reader api.SessionID
	inSolo(t, func(s *raftfsm.State) {
		reader = with(t, s, cachingSessionOf("reader"))[0].Session
		owner := ephemerals(t, s, "owner", "/e")
		with(t, s, raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: owner}}}})
	}, func(t *testing.T, m *soloMaster) {
		time.Sleep(11 * time.Second)
		if node, there := m.epoch.state().Tree.Get("/e"); !there || !node.Dying() {
			t.Fatal("the node was removed while a client could have it in its cache")
		}
		time.Sleep(2 * time.Second) // the reader's lease ends
		synctest.Wait()
		if _, lives := m.epoch.state().Sessions.Get(reader); lives {
			t.Fatal("the reader's session has not ended")
		}
		if _, there := m.epoch.state().Tree.Get("/e"); there {
			t.Error("the node is still there")
		}
	})
}
