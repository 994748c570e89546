package master

import (
	"fmt"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// admitRootOnly takes everybody else out of the list everyone, by which there is a right to everything.
func admitRootOnly(t *testing.T, s *raftfsm.State) {
	t.Helper()
	file, _ := s.Tree.Get("/acl/everyone")
	id := with(t, s, cachingSession(1))[0].Session
	with(t, s, raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: session.Mutation{Session: id, Number: 1, HighestIssued: 1, Outstanding: []api.RequestNumber{1}, Hash: 1}, Node: file.Ref(), Contents: []byte("root\n")}})
}

// A principal that is no operator is to see its own quota, whoever else there is.
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
			in := m.Inspector.For("zoe")
			found, pages := false, 0
			for after := []byte(nil); ; pages++ {
				p, err := in.ListQuotas(t.Context(), after, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, one := range p.List {
					found = found || one.Principal == "zoe"
				}
				if after = p.Next; len(after) == 0 {
					break
				}
			}
			if !found {
				t.Errorf("beside %d others, zoe's own quota is not listed to her (%d pages)", others, pages+1)
			}
		})
	}
}
