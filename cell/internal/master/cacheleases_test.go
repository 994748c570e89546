package master

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// leased and patient edit a session: it uses its cache only under cache leases; it caches nothing, and lasts for as long as a
// session may without a KeepAlive.
func leased(c *raftfsm.CreateSession) { c.CacheLease = true }

func patient(c *raftfsm.CreateSession) { c.Lease, c.MayCache = api.MaxLease, false }

// renew asks for a cache lease.
func (c *soloClient) renew(t *testing.T) time.Duration {
	t.Helper()
	return must(c.m.Files.RenewCache(t.Context(), c.who.Session))(t)
}

// took returns how long a change takes, by the clock of the master, and fails the test if that fails.
func took(t *testing.T, done <-chan error) time.Duration {
	t.Helper()
	began := time.Now()
	noErr(t, <-done)
	return time.Since(began)
}

// Decision 23: a change waits for a client that does not answer as long as its cache lease runs,
// and not at all if none does. A client that has none is waited for until its session has ended.
func TestChangeWaitsForCacheLease(t *testing.T) {
	for name, test := range map[string]struct {
		leased bool
		before []time.Duration // how long before the change the client has renewed its cache lease
		want   time.Duration
	}{
		"just renewed":        {leased: true, before: []time.Duration{0}, want: api.CacheLease},
		"renewed a while ago": {leased: true, before: []time.Duration{2 * time.Second, time.Second}, want: api.CacheLease - time.Second},
		"over":                {leased: true, before: []time.Duration{api.CacheLease}},
		"never renewed":       {leased: true},
		"of the session":      {before: []time.Duration{0}, want: api.DefaultLease},
	} {
		t.Run(name, func(t *testing.T) {
			inSolo(t, nil, func(t *testing.T, m *soloMaster) {
				author := m.clientOf(t, 100, patient)
				f := author.open(t, "/ls/local/f", api.MayCreate).Handle
				reader := m.client(t, 2)
				if test.leased {
					reader = m.clientOf(t, 3, leased)
				}
				reader.open(t, "/ls/local/f", api.MustExist)
				for i, before := range test.before {
					if lease := reader.renew(t); (lease == api.CacheLease) != test.leased {
						t.Errorf("granted %v", lease)
					}
					after := time.Duration(0)
					if i+1 < len(test.before) {
						after = test.before[i+1]
					}
					time.Sleep(before - after)
				}
				time.Sleep(10 * time.Millisecond) // between two looks of the clock loop: a change that waits for nobody does not need one
				if got := took(t, author.write(t.Context(), f)); got < test.want-10*time.Millisecond || got > test.want && (test.want == 0 || got > test.want+200*time.Millisecond) {
					t.Errorf("it waited %v, want %v", got, test.want)
				}
			})
		})
	}
}

// A client that was told to drop something, and has not said that it has, gets no cache lease, also
// when nobody waits for it any more; nor may it keep what it reads of that name. So it uses
// nothing that is not true, whenever it comes back.
func TestNoCacheLeaseBeforeDropped(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.clientOf(t, 2, leased)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		h := reader.open(t, "/ls/local/f", api.MustExist).Handle
		reader.renew(t)
		done := author.write(t.Context(), f)
		for range 4 {
			synctest.Wait()
			if lease := reader.renew(t); lease != 0 {
				t.Fatalf("granted %v before it has dropped what it was told to", lease)
			}
			time.Sleep(time.Second)
		}
		stopIf(t, stillWaits(done), "the change waits for a cache lease that was over 1.5 s ago")
		if _, cacheable, err := m.Files.ReadToCache(t.Context(), h, namespace.ToRead); err != nil || cacheable {
			t.Errorf("cacheable %v, %v", cacheable, err)
		}
		if got := took(t, author.write(t.Context(), f)); got > 0 {
			t.Errorf("the next write waited %v", got)
		}
		reader.acknowledge(t, reader.hear(t))
		equal(t, reader.renew(t), api.CacheLease, "granted %v when it has dropped everything")
		if _, cacheable, err := m.Files.ReadToCache(t.Context(), h, namespace.ToRead); err != nil || !cacheable {
			t.Errorf("cacheable %v, %v", cacheable, err)
		}
		if got := took(t, author.write(t.Context(), f)); got < api.CacheLease {
			t.Errorf("it waited %v for who has read it anew", got)
		}
	})
}

// The author of a change gets no invalidation, and stays in the copyset: the next change of another has to tell
// it, also if its cache lease was over while its own waited.
func TestAuthorIsToldOfTheNextChange(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.clientOf(t, 1, leased), m.clientOf(t, 2, leased)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		for _, c := range []*soloClient{author, reader} {
			c.open(t, "/ls/local/f", api.MustExist)
			c.renew(t)
		}
		own := reader.open(t, "/ls/local/f", api.MustExist).Handle
		if got := took(t, author.write(t.Context(), f)); got < api.CacheLease {
			t.Fatalf("it waited %v", got)
		}
		if lease := author.renew(t); lease != api.CacheLease {
			t.Fatalf("the author was granted %v", lease)
		}
		done := reader.write(t.Context(), own)
		stopIf(t, !stillWaits(done), "a change did not wait for the author of the one before")
		if events := author.hear(t); len(events) != 1 || events[0].Path != "/ls/local/f" {
			t.Errorf("told %v", events)
		}
		<-done
	})
}

// After a fail-over changes wait for a session with cache leases no longer than for the longest of
// these, and for another until it has ended (decision 12).
func TestTakeoverWaitsForCacheLease(t *testing.T) {
	for _, test := range []struct {
		leased bool
		want   time.Duration
	}{{true, api.CacheLease}, {false, api.DefaultLease}} {
		before := cachingSession(9)
		before.CreateSession.CacheLease = test.leased
		inSolo(t, func(s *raftfsm.State) { with(t, s, before) }, func(t *testing.T, m *soloMaster) {
			author := m.clientOf(t, 100, patient)
			began := time.Now()
			author.open(t, "/ls/local/f", api.MayCreate)
			if got := time.Since(began); got < test.want || got > test.want+200*time.Millisecond {
				t.Errorf("a creation waited %v, want %v", got, test.want)
			}
		})
	}
}

// Below the level at which sessions are known by it, none has cache leases: a replica of an older
// version may be the next master, and would not wait for them.
func TestNoCacheLeasesBelowTheirLevel(t *testing.T) {
	lower := func(s *raftfsm.State) { s.Level = raftfsm.CacheLeaseLevel - 1 }
	inSolo(t, lower, func(t *testing.T, m *soloMaster) {
		c := m.clientOf(t, 1, leased)
		if m.Sessions.NeedsCacheLease(c.who.Session) || c.renew(t) != 0 {
			t.Error("a session of a cell below the level has cache leases")
		}
	})
}

// ephemerals opens ephemeral nodes in a session and returns its id.
func ephemerals(t *testing.T, s *raftfsm.State, owner string, names ...api.Name) api.SessionID {
	t.Helper()
	c := early(t, s, cachingSessionOf(owner))
	for _, name := range names {
		with(t, s, raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(), Name: name, Create: api.MustCreate, Kind: api.File, Ephemeral: true}})
	}
	return c.who.Session
}

// A client that does not drop its cache delays only the removal of the nodes in it: all other nodes that died with them
// are removed, and can be cached again, before that.
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
		maker := early(t, s, cachingSessionOf("maker"))
		with(t, s, raftfsm.Command{Open: &raftfsm.Open{Mutation: maker.mutation(), Name: "/d", Create: api.MustCreate, Kind: api.Directory}})
		owner = ephemerals(t, s, "owner", names...)
		with(t, s, raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: maker.who.Session}}}})
	}, func(t *testing.T, m *soloMaster) {
		good := m.client(t, 1)
		go good.keep(t.Context())
		slow := m.client(t, 2)
		stopIf(t, !m.coherence.registerReader(slow.who.Session, cached...), "the client cannot cache the nodes")
		noErr(t, m.Sessions.endStopped(t.Context(), raftfsm.End{Session: owner, Reason: api.ByClose}))
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
		noErr(t, m.Sessions.endStopped(t.Context(), raftfsm.End{Session: owner, Reason: api.ByClose}))
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
