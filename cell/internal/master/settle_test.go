package master

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/raftfsm"
)

// A spare is to take the place of a replica, and another change has been decided since its master looked: nothing is done, and the
// master and its log say so.
func TestSpareThatComesTooLate(t *testing.T) {
	lines := &testbed.Lines{}
	inSoloLogged(t, slog.New(slog.NewTextHandler(lines, nil)), func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		founders := []raftfsm.Member{{ID: "r1", Raft: "h:1"}, {ID: "r2", Raft: "h:2"}, {ID: "r3", Raft: "h:3"}}
		spare := &raftfsm.Member{ID: "s1", Raft: "h:9", Client: "h:8", Incarnation: "i", Phase: raftfsm.Standby}
		if err := m.ChangeMembers(t.Context(), raftfsm.ChangeMembers{Mutation: c.mutation(), Founders: founders, Add: spare}); err != nil {
			t.Fatal(err)
		}
		if err := m.ChangeMembers(t.Context(), raftfsm.ChangeMembers{Mutation: c.mutation(), Remove: "r3"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_ = lines.Take()
		takes := raftfsm.SettleMember{ID: "s1", Phase: raftfsm.Standby, Replaces: "r2"}
		if settled, err := m.SettleMember(t.Context(), takes); settled || err != nil {
			t.Error("beside another change:", settled, err)
		}
		synctest.Wait() // for the log
		if said := strings.Join(lines.Take(), ""); strings.Contains(said, "member_settled") {
			t.Error("the log says:", said)
		}
		for _, settled := range []raftfsm.SettleMember{{ID: "r3", Phase: raftfsm.Leaving}, takes} {
			if ok, err := m.SettleMember(t.Context(), settled); !ok || err != nil {
				t.Errorf("%+v: %v, %v", settled, ok, err)
			}
		}
		synctest.Wait()
		if said := strings.Join(lines.Take(), ""); strings.Count(said, "member_settled") != 2 {
			t.Error("the log says:", said)
		}
	})
}
