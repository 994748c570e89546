package master

import (
	"fmt"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

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
		listings := map[string]func(most int) (length int, more bool, err error){
			"sessions": func(most int) (int, bool, error) {
				p, err := m.Inspector.ListSessions(t.Context(), 0, nil, most)
				return len(p.List), p.Next != nil, err
			},
			"locks": func(most int) (int, bool, error) {
				p, err := m.Inspector.ListLocks(t.Context(), "", 0, nil, most)
				return len(p.List), p.Next != nil, err
			},
			"locks of a session": func(most int) (int, bool, error) {
				p, err := m.Inspector.ListLocks(t.Context(), "", id, nil, most)
				return len(p.List), p.Next != nil, err
			},
			"quotas": func(most int) (int, bool, error) {
				p, err := m.Inspector.ListQuotas(t.Context(), nil, most)
				return len(p.List), p.Next != nil, err
			},
			"a directory": func(most int) (int, bool, error) {
				p, err := m.Files.ReadDir(t.Context(), root, "", most)
				return len(p.Children), p.More, err
			},
		}
		for what, list := range listings {
			for wanted, want := range map[int]int{1: 1, 7: 7, api.MaxPage: api.MaxPage, 0: api.MaxPage, api.MaxPage + 50: api.MaxPage, -1: api.MaxPage} {
				if n, more, err := list(wanted); n > want || n == 0 || n < min(want, 100) || !more || err != nil {
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
