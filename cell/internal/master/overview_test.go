package master

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
	"pgregory.net/rapid"
)

// waits has a session wait for a lock since then.
func (s *soloMaster) waits(t *testing.T, id api.SessionID, number api.RequestNumber, name api.Name, reason string, since session.Instant) *tables.Waiter {
	t.Helper()
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	return must(s.tables.Queues.Join(&tables.Waiter{
		Lock: namespace.Ref{Name: name, Instance: 7}, Who: "p", Since: since,
		LockRequest: tables.LockRequest{Claim: raftfsm.Claim{Mutation: session.Mutation{Session: id, Number: number}, Mode: api.Exclusive, Reason: reason}},
	}, 1, 1<<30))(t)
}

// The walk over all queues asks for nobody's rights, which may take long for each name: they need the replicated state, and that is
// read when the walk is over, without the mutex. So waiters that joined a queue meanwhile are known by name.
func TestOverviewAsksForRightsAfterTheWalk(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, s *soloMaster) {
		var looking, came atomic.Bool
		var held atomic.Int64
		s.looking.set(func() {
			if !looking.Load() {
				return
			}
			if s.epoch.mu.mu.TryLock() {
				s.epoch.mu.mu.Unlock()
			} else {
				held.Add(1)
			}
		})
		first := s.client(t, 1)
		for i := range 5 {
			s.waits(t, first.who.Session, api.RequestNumber(i+1), api.Name(fmt.Sprint("/lock-", i)), "", session.Instant(i))
		}
		var late api.SessionID
		s.epoch.mu.Lock()
		s.epoch.mu.maxStepsOverride = 1
		s.epoch.mu.held = func(time.Duration) { // in the first pause of the walk
			if !looking.Load() || !came.CompareAndSwap(false, true) {
				return
			}
			looking.Store(false)
			late = s.client(t, 2).who.Session
			s.waits(t, late, 1, "/lock-0", "", 9)
			looking.Store(true)
		}
		s.epoch.mu.Unlock()
		synctest.Wait()
		looking.Store(true)
		o, err := s.Inspector.For("p").Overview(t.Context(), 0)
		looking.Store(false)
		noErr(t, err)
		if n := held.Load(); n > 0 {
			t.Errorf("the state, which says who has which rights, was read %d times with the mutex held", n)
		}
		if len(o.Waits) != 5 || late == 0 {
			t.Fatalf("%d locks are waited for, and session %v has come meanwhile", len(o.Waits), late)
		}
		i := slices.IndexFunc(o.Waits, func(l api.LockInfo) bool { return l.Path == "/ls/local/lock-0" })
		for _, w := range o.Waits[i].Waiters {
			if w.Principal != "p" {
				t.Errorf("session %v, which came during the walk, has no name: the state is older than the queue", w.Session)
			}
		}
		equal(t, len(o.Waits[i].Waiters), 2, "%d wait for it")
	})
}

// However much waits, a reply is no larger than a page of a listing and one lock: the rest is counted.
func TestOverviewHasABound(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		reason := strings.Repeat("r", api.MaxReason)
		const locks = api.MaxListed
		for i := range locks {
			for n := range api.MaxListed {
				m.waits(t, c.who.Session, api.RequestNumber(1+i*api.MaxListed+n), api.Name(fmt.Sprint("/lock-", i)), reason, session.Instant(i))
			}
		}
		o := must(m.Inspector.Overview(t.Context(), api.MaxListed))(t)
		size, largest := 0, 0
		for _, l := range o.Waits {
			size, largest = size+LockBytes(l), max(largest, LockBytes(l))
		}
		if size > api.MaxPageBytes+largest || size < api.MaxPageBytes/2 {
			t.Errorf("the reply has %d bytes, and a page %d at most", size, api.MaxPageBytes)
		}
		if len(o.Waits)+o.MoreWaits != locks || o.MoreWaits == 0 {
			t.Errorf("%d locks are listed, and %d counted; want %d together", len(o.Waits), o.MoreWaits, locks)
		}
	})
}

// After a fail-over a request with an earlier ticket may have come later: the longest wait of a queue is not that of its first.
func TestOverviewFindsTheOldestWait(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		now := m.epoch.clock()
		for i, since := range []time.Duration{time.Second, 60 * time.Second, 2 * time.Second} {
			m.waits(t, c.who.Session, api.RequestNumber(i+1), "/failed-over", "", now.Add(-since))
		}
		m.waits(t, c.who.Session, 9, "/other", "", now.Add(-30*time.Second))
		o := must(m.Inspector.Overview(t.Context(), 1))(t)
		if len(o.Waits) != 1 || o.Waits[0].Path != "/ls/local/failed-over" || o.MoreWaits != 1 {
			t.Errorf("%d locks, the first %+v, and %d more; want the one for which somebody has waited for a minute", len(o.Waits), o.Waits, o.MoreWaits)
		}
	})
}

// What the walk has met twice, because it changed in a pause, is listed once, and counted once; and what may not be seen not at all.
func TestLongestAreListedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names, sinces := rapid.SliceOf(rapid.IntRange(0, 8)).Draw(t, "names"), map[int]int64{}
		var all []aged[int]
		for _, name := range names {
			if _, known := sinces[name]; !known {
				sinces[name] = rapid.Int64Range(1, 5).Draw(t, "since")
			}
			all = append(all, aged[int]{session.Instant(sinces[name]), name})
		}
		hidden, most := rapid.IntRange(0, 8).Draw(t, "hidden"), rapid.IntRange(1, 5).Draw(t, "most")
		found, more, err := findLongest(context.Background(), all, most, func(name int) bool { return name != hidden })
		if err != nil {
			t.Fatal(err)
		}
		delete(sinces, hidden)
		listed := map[int]bool{}
		if !slices.IsSortedFunc(found, func(a, b aged[int]) int { return cmp.Compare(a.since, b.since) }) {
			t.Fatalf("%v are not in order", found)
		}
		for _, one := range found {
			if listed[one.what] || one.what == hidden {
				t.Fatalf("%d is listed, and %v before", one.what, listed)
			}
			listed[one.what] = true
		}
		for name, since := range sinces {
			if !listed[name] && session.Instant(since) < found[len(found)-1].since {
				t.Fatalf("%v are listed, and not %d since %d", found, name, since)
			}
		}
		if len(listed) != min(most, len(sinces)) || len(listed)+more != len(sinces) {
			t.Fatalf("%d are listed and %d counted of %d", len(listed), more, len(sinces))
		}
	})
}

// A change that every change waits for after a fail-over is one that waits.
func TestFlushIsOfTheBacklog(t *testing.T) {
	prepare := func(s *raftfsm.State) { with(t, s, cachingSession(1)) }
	inSolo(t, prepare, func(t *testing.T, m *soloMaster) {
		equal(t, m.Backlog().Changes, 1, "after a fail-over, with a client that may have cached anything, %d changes wait")
		time.Sleep(20 * time.Second)
		equal(t, m.Backlog().Changes, 0, "when the client's lease is over, %d changes wait")
	})
}

// admitRootOnly takes everybody else out of the list everyone, by which there is a right to everything.
func admitRootOnly(t *testing.T, s *raftfsm.State) {
	t.Helper()
	file, _ := s.Tree.Get("/acl/everyone")
	by := early(t, s, cachingSession(1)).mutation()
	with(t, s, raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: by, Node: file.Ref(), Contents: []byte("root\n")}})
}

// A principal that is no operator sees its own quota beside any others.
func TestOwnQuotaBesideManyOthers(t *testing.T) {
	for _, others := range []int{999, 1001, 2500} {
		prepare := func(s *raftfsm.State) {
			for i := range others {
				with(t, s, raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: fmt.Appendf(nil, "%016d", i), Principal: fmt.Sprintf("p%06d", i), Lease: time.Minute}})
			}
			with(t, s, raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: fmt.Appendf(nil, "%016d", others), Principal: "zoe", Lease: time.Minute}})
			admitRootOnly(t, s)
		}
		inSolo(t, prepare, func(t *testing.T, m *soloMaster) {
			failIf(t, !slices.Contains(quotasOf(t, m.Inspector.For("zoe")), "zoe"), "beside %d others, zoe's own quota is not listed to her", others)
		})
	}
}
