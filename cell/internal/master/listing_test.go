package master

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// manySessions adds sessions of many principals to a state, with ids from 1 on. Their texts are as long as is allowed.
func manySessions(t *testing.T, s *raftfsm.State, n int) {
	t.Helper()
	for i := range n {
		with(t, s, raftfsm.Command{CreateSession: &raftfsm.CreateSession{
			Nonce: fmt.Appendf(nil, "%016d", i), Principal: fmt.Sprintf("%0*d", api.MaxPrincipal, i), Host: "host", PID: 1, Lease: time.Minute,
		}})
	}
}

// holding adds nodes to a state; the session with that id holds their locks.
func holding(t *testing.T, s *raftfsm.State, id api.SessionID, names ...api.Name) {
	t.Helper()
	c := &soloClient{who: Caller{Session: id}}
	if one, ok := s.Sessions.Get(id); ok {
		c.number = one.HighestIssued
	}
	for _, name := range names {
		opened := with(t, s, raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(), Name: name, Create: api.MayCreate, Kind: api.File}})[0]
		with(t, s, raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{
			Lock:   namespace.Ref{Name: name, Instance: opened.Stat.Instance},
			Claims: []raftfsm.Claim{{Mutation: c.mutation(), Handle: 1, Mode: api.Shared, Delay: time.Minute}},
		}}})
	}
}

// fits checks that a page is within its bounds.
func fits(t *testing.T, entries, bytes int) {
	t.Helper()
	failIf(t, entries > api.MaxPage || bytes > api.MaxPageBytes+16<<10, "a page of %d entries and %d bytes", entries, bytes)
}

// allPages asks for page after page of a listing, and returns their entries and number.
func allPages[T any](t *testing.T, ask func(after []byte) (Page[T], error)) (all []T, pages int) {
	t.Helper()
	for after := []byte(nil); pages == 0 || len(after) > 0; pages++ {
		p := must(ask(after))(t)
		fits(t, len(p.List), p.bytes)
		all, after = append(all, p.List...), p.Next
	}
	return all, pages
}

func TestSessionsComeInPages(t *testing.T) {
	const sessions = 2500
	inSolo(t, func(s *raftfsm.State) { manySessions(t, s, sessions) }, func(t *testing.T, m *soloMaster) {
		all, pages := allPages(t, func(after []byte) (Page[api.SessionInfo], error) {
			return m.Inspector.ListSessions(t.Context(), 0, after, 0)
		})
		var ids []api.SessionID
		for _, one := range all {
			ids = append(ids, one.Session)
			stopIf(t, one.LeftLeast != time.Minute, "%v is left of the lease of %v", one.LeftLeast, one)
		}
		var want []api.SessionID
		for s := range m.epoch.state().Sessions.All() {
			want = append(want, s.ID)
		}
		if !slices.Equal(ids, want) || len(ids) != sessions || pages < 2 {
			t.Errorf("%d sessions in %d pages, want %d", len(ids), pages, sessions)
		}
		one, err := m.Inspector.ListSessions(t.Context(), want[7], nil, 0)
		if err != nil || len(one.List) != 1 || one.List[0].Session != want[7] || one.Next != nil {
			t.Errorf("asked for session %d: %v, %v", want[7], one, err)
		}
		if none, err := m.Inspector.ListSessions(t.Context(), 1<<40, nil, 0); err != nil || len(none.List) > 0 {
			t.Errorf("asked for a session that is not there: %v, %v", none, err)
		}
	})
}

// locksIn asks for page after page of the locks at and below a name.
func (s *soloMaster) locksIn(t *testing.T, prefix api.Name, id api.SessionID) map[string]api.LockInfo {
	t.Helper()
	all, _ := allPages(t, func(after []byte) (Page[api.LockInfo], error) {
		return s.Inspector.ListLocks(t.Context(), prefix, id, after, 0)
	})
	found := map[string]api.LockInfo{}
	for _, l := range all {
		failIf(t, found[l.Path].Path != "", "%s is listed twice", l.Path)
		found[l.Path] = l
	}
	return found
}

// quotasOf asks for page after page of the quotas, and returns their principals.
func quotasOf(t *testing.T, in *Inspector) (names []string) {
	t.Helper()
	all, _ := allPages(t, func(after []byte) (Page[api.QuotaUse], error) { return in.ListQuotas(t.Context(), after, 0) })
	for _, one := range all {
		names = append(names, one.Principal)
	}
	return names
}

func TestLocksComeInPages(t *testing.T) {
	var all, deep, delayed []api.Name
	var first api.SessionID
	prepare := func(s *raftfsm.State) {
		c := early(t, s, cachingSession(1))
		first = c.who.Session
		second := early(t, s, cachingSession(2)).who.Session
		for name, kind := range map[api.Name]api.Kind{"/d": api.Directory, "/free": api.File} {
			with(t, s, raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(), Name: name, Create: api.MayCreate, Kind: kind}})
		}
		for i := range 1500 {
			all = append(all, api.Name(fmt.Sprintf("/%s-%d", longName(200), i)))
			deep = append(deep, api.Name(fmt.Sprintf("/d/%d", i)))
		}
		holding(t, s, first, all...)
		holding(t, s, first, deep...)
		delayed = []api.Name{"/d/gone", "/gone", "/zgone"}
		holding(t, s, second, delayed...)
		with(t, s, raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: second, Reason: api.ByExpiry}}}})
		for _, name := range delayed[:2] { // their nodes are gone, too
			node, _ := s.Tree.Get(name)
			s.Tree.Remove(node.Ref())
		}
	}
	inSolo(t, prepare, func(t *testing.T, m *soloMaster) {
		free, _ := m.epoch.state().Tree.Get("/free")
		m.epoch.mu.Lock()
		_, err := m.tables.Queues.Join(&tables.Waiter{Lock: free.Ref(), LockRequest: tables.LockRequest{Claim: raftfsm.Claim{Mutation: session.Mutation{Session: 77, Number: 1}}}}, 1, 1)
		m.epoch.mu.Unlock()
		noErr(t, err)
		want := slices.Concat(all, deep, delayed, []api.Name{"/free"})
		check := func(got map[string]api.LockInfo, want []api.Name) {
			t.Helper()
			paths := map[string]bool{}
			for _, name := range want {
				paths[m.epoch.path(name)] = true
			}
			if !maps.EqualFunc(got, paths, func(api.LockInfo, bool) bool { return true }) {
				t.Errorf("%d locks are listed, want %d", len(got), len(paths))
			}
		}
		check(m.locksIn(t, "", 0), want)
		check(m.locksIn(t, "/d", 0), append(slices.Clone(deep), "/d/gone"))
		check(m.locksIn(t, "/free", 0), []api.Name{"/free"})
		check(m.locksIn(t, "", first), slices.Concat(all, deep))
		check(m.locksIn(t, "/d", first), deep)
		check(m.locksIn(t, "", 77), nil)
	})
}

func longName(n int) string { return string(slices.Repeat([]byte("n"), n)) }

// Of the holders and waiters of a crowded lock, every answer names some and counts the others.
func TestCrowdsAreCounted(t *testing.T) {
	const crowd = 150
	prepare := func(s *raftfsm.State) {
		manySessions(t, s, crowd)
		for one := range s.Sessions.All() {
			holding(t, s, one.ID, "/lock")
		}
	}
	inSolo(t, prepare, func(t *testing.T, m *soloMaster) {
		node, _ := m.epoch.state().Tree.Get("/lock")
		var last *tables.Waiter
		m.epoch.mu.Lock()
		for i := range crowd {
			var err error
			if last, err = m.tables.Queues.Join(&tables.Waiter{Lock: node.Ref(), LockRequest: tables.LockRequest{Claim: raftfsm.Claim{
				Mutation: session.Mutation{Session: 5000, Number: api.RequestNumber(i + 1)}, Mode: api.Exclusive,
			}}}, 1, crowd); err != nil {
				t.Fatal(err)
			}
		}
		m.epoch.mu.Unlock()
		info := m.locksIn(t, "/lock", 0)[m.epoch.path("/lock")]
		if n := len(info.Holders); n != api.MaxListed || info.MoreHolders != crowd-api.MaxListed {
			t.Errorf("%d holders and %d more, want %d and %d", n, info.MoreHolders, api.MaxListed, crowd-api.MaxListed)
		}
		if n := len(info.Waiters); n != api.MaxListed || info.MoreWaiters != crowd-api.MaxListed {
			t.Errorf("%d waiters and %d more, want %d and %d", n, info.MoreWaiters, api.MaxListed, crowd-api.MaxListed)
		}
		if q := m.Locks.queuePosition(last); len(q.Holders) != api.MaxNamed || q.MoreHolders != crowd-api.MaxNamed {
			t.Errorf("a waiter's answer has %d holders and %d more", len(q.Holders), q.MoreHolders)
		}
		var refused *api.Error
		if !errors.As(m.Locks.Explain(node.Ref(), &api.Error{Code: api.LockHeld}), &refused) || len(refused.Holders) != api.MaxListed {
			t.Errorf("an error names %d holders", len(refused.Holders))
		}
	})
}

func TestQuotasComeInPages(t *testing.T) {
	const principals = 2500
	prepare := func(s *raftfsm.State) {
		manySessions(t, s, principals)
		c := early(t, s, cachingSession(1))
		for i := range 3 {
			with(t, s, raftfsm.Command{SetQuota: &raftfsm.SetQuota{Mutation: c.mutation(), Principal: fmt.Sprint("quota-", i), Quota: api.Quota{Nodes: 1}}})
		}
	}
	inSolo(t, prepare, func(t *testing.T, m *soloMaster) {
		names := quotasOf(t, m.Inspector)
		if !slices.IsSorted(names) || len(slices.Compact(names)) != principals+4 {
			t.Errorf("%d principals, want %d in order", len(names), principals+3)
		}
	})
}

// A page of a directory fits a message, however long the names in it are.
func TestDirectoriesComeInPages(t *testing.T) {
	const nodes = 900
	var id api.SessionID
	prepare := func(s *raftfsm.State) {
		id = with(t, s, cachingSession(1))[0].Session
		var names []api.Name
		for i := range nodes {
			names = append(names, api.Name(fmt.Sprintf("/%s%03d", longName(api.MaxComponent-3), i)))
		}
		holding(t, s, id, names...)
	}
	inSolo(t, prepare, func(t *testing.T, m *soloMaster) {
		root := Handle{Owner: namespace.Owner{Session: id, Handle: 1}, Node: namespace.Ref{Instance: 1}, Rights: namespace.ToRead, Epoch: 0}
		seen, after := 0, ""
		for {
			p := must(m.Files.ReadDir(t.Context(), root, after, 0))(t)
			bytes := 0
			for _, child := range p.Children {
				bytes += statBytes(child)
				after = child.Name.Base()
			}
			fits(t, len(p.Children), bytes)
			if seen += len(p.Children); !p.More {
				break
			}
		}
		failIf(t, seen < nodes, "%d nodes were listed, of %d", seen, nodes)
	})
}

// listingsOf are the listings that come in pages; each returns the length of one, and whether others follow.
func listingsOf(id api.SessionID) map[string]func(ctx context.Context, m *soloMaster, most int) (length int, more bool, err error) {
	return map[string]func(ctx context.Context, m *soloMaster, most int) (int, bool, error){
		"sessions": func(ctx context.Context, m *soloMaster, most int) (int, bool, error) {
			p, err := m.Inspector.ListSessions(ctx, 0, nil, most)
			return len(p.List), p.Next != nil, err
		},
		"locks": func(ctx context.Context, m *soloMaster, most int) (int, bool, error) {
			p, err := m.Inspector.ListLocks(ctx, "", 0, nil, most)
			return len(p.List), p.Next != nil, err
		},
		"locks of a session": func(ctx context.Context, m *soloMaster, most int) (int, bool, error) {
			p, err := m.Inspector.ListLocks(ctx, "", cmp.Or(id, 1), nil, most)
			return len(p.List), p.Next != nil, err
		},
		"quotas": func(ctx context.Context, m *soloMaster, most int) (int, bool, error) {
			p, err := m.Inspector.ListQuotas(ctx, nil, most)
			return len(p.List), p.Next != nil, err
		},
	}
}

// However many clients ask for listings, few are made at a time: each takes memory that is not
// counted before it is sent, and the mutex again and again.
func TestFewPagesAreMadeAtATime(t *testing.T) {
	listings := listingsOf(0)
	listings["explain"] = func(ctx context.Context, m *soloMaster, _ int) (int, bool, error) {
		_, err := m.Inspector.Explain(ctx, "/f")
		return 0, false, err
	}
	for name, list := range listings {
		ask := func(ctx context.Context, m *soloMaster) error {
			_, _, err := list(ctx, m, 0)
			return err
		}
		t.Run(name, func(t *testing.T) {
			inSolo(t, nil, func(t *testing.T, m *soloMaster) {
				var made []func()
				for range maxPages {
					made = append(made, must(m.Inspector.beginPage(t.Context()))(t))
				}
				ctx, cancel := context.WithCancel(t.Context())
				gaveUp, waits := later(func() error { return ask(ctx, m) }), later(func() error { return ask(t.Context(), m) })
				stopIf(t, !stillWaits(waits), "a page is made beside %d others", maxPages)
				cancel()
				fails(t, <-gaveUp, api.Unavailable, "a call that was given up while it waited")
				for _, done := range made {
					done()
				}
				report(t, <-waits)
			})
		})
	}
}

// Pages are as long as is wanted, and never longer than api.MaxPage.
func TestPagesAreAsLongAsWanted(t *testing.T) {
	const nodes = api.MaxPage + 100
	var id api.SessionID
	prepare := func(s *raftfsm.State) {
		manySessions(t, s, nodes)
		id = with(t, s, cachingSession(1))[0].Session
		var names []api.Name
		for i := range nodes {
			names = append(names, api.Name(fmt.Sprintf("/node%04d", i)))
		}
		holding(t, s, id, names...)
	}
	inSolo(t, prepare, func(t *testing.T, m *soloMaster) {
		root := Handle{Owner: namespace.Owner{Session: id, Handle: 1}, Node: namespace.Ref{Instance: 1}, Rights: namespace.ToRead, Epoch: 0}
		listings := listingsOf(id)
		listings["a directory"] = func(ctx context.Context, m *soloMaster, most int) (int, bool, error) {
			p, err := m.Files.ReadDir(ctx, root, "", most)
			return len(p.Children), p.More, err
		}
		for what, list := range listings {
			for wanted, want := range map[int]int{1: 1, 7: 7, api.MaxPage: api.MaxPage, 0: api.MaxPage, api.MaxPage + 50: api.MaxPage, -1: api.MaxPage} {
				if n, more, err := list(t.Context(), m, wanted); n > want || n == 0 || n < min(want, 100) || !more || err != nil {
					t.Errorf("%s, %d wanted: %d, others follow %v, %v; want %d", what, wanted, n, more, err, want)
				}
			}
		}
	})
}

// One quota is found by its name, and only by who may see it.
func TestFindQuota(t *testing.T) {
	prepare := func(s *raftfsm.State) {
		manySessions(t, s, 3)
		admitRootOnly(t, s)
	}
	inSolo(t, prepare, func(t *testing.T, m *soloMaster) {
		var known string
		for name := range m.epoch.state().Sessions.Principals("") {
			if len(name) == api.MaxPrincipal {
				known = name
			}
		}
		for viewer, sees := range map[string]bool{"": true, known: true, "somebody else": false} {
			p, err := m.Inspector.For(viewer).FindQuota(t.Context(), known, "")
			if found := len(p.List) == 1 && p.List[0].Principal == known && p.List[0].Used.Sessions == 1 && p.List[0].Allowed.Nodes == api.DefaultQuota().Nodes; found != sees || len(p.List) > 1 || err != nil {
				t.Errorf("%q asks for the quota of %s: %v, %v", viewer, known, p.List, err)
			}
			if p, err := m.Inspector.For(viewer).FindQuota(t.Context(), "", "/none"); len(p.List) > 0 || err != nil {
				t.Errorf("%q asks for the quota of what is not there: %v, %v", viewer, p.List, err)
			}
		}
	})
}
