package master

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/raftfsm"
)

// A call that was sent to the master of another epoch is refused. A request may be answered without
// the log, so a later master does not know of the answer: it must not accept a copy of the request.
// An Open that found its node would create it again after its deletion.
func TestCallOfAnotherEpochIsRefused(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		id := m.client(t, 1).who.Session
		for epoch, want := range []error{api.StaleEpoch, nil, api.NotMaster} {
			if err := m.Sessions.Admit(Caller{Session: id, Epoch: api.Epoch(epoch)}); !errors.Is(err, want) {
				t.Errorf("a call of epoch %d in epoch 1: %v, want %v", epoch, err, want)
			}
		}
	})
}

// The master's epoch ends, or it cuts off a session, while the log is being asked to grant a lock.
// The master does not know the result: it answers neither that the request was refused, nor that
// nothing was done. For a request about which the log was not asked, it says so.
func TestEndOfEpochIsNoRefusal(t *testing.T) {
	for what, end := range map[string]func(m *soloMaster, c *soloClient){
		"epoch": func(m *soloMaster, _ *soloClient) { m.end(api.Errorf(api.NotMaster, "another is")) },
		"session": func(m *soloMaster, c *soloClient) {
			mu := m.epoch.mu.hold()
			defer mu.end()
			m.revocations.stopLease(mu, c.who.Session, "it is slow")
		},
	} {
		t.Run(what, func(t *testing.T) {
			withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
				entered, leave := m.holdNextEntry()
				first := c[0].wait(t.Context(), h[0], c[0].claim(h[0], api.Exclusive))
				<-entered
				end(m, c[0])
				fails(t, answered(t, first).err, api.Uncertain, "the answer to a claim that the log may grant")
				close(leave)
			})
		})
	}
}

// A request that only waits is answered that there is another master: nothing was done.
func TestEndOfEpochIsToldToWaiters(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		c[0].try(t, h[0], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
		m.end(api.Errorf(api.NotMaster, "another is"))
		fails(t, answered(t, waits).err, api.NotMaster)
	})
}

// The same for a request about which the log was asked by an entry with an unknown result.
func TestDoubtStays(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		got := c[0].try(t, h[0], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
		m.losing.Store(true) // the leadership, with the entry on its way
		mustFail(t, m.Locks.Release(t.Context(), c[0].mutation(), h[0], got.Generation), api.Uncertain)
		m.end(api.Errorf(api.NotMaster, "another is"))
		fails(t, answered(t, waits).err, api.Uncertain)
	})
}

// When an epoch ends, every command that was handed over is answered, also
// those that came while the last entry was on its way.
func TestProposalsAreAnsweredAtTheEnd(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		ctx, cancel := context.WithCancelCause(t.Context())
		p := newProposer(untimed(m), func([]*proposal, []raftfsm.Result, error) {})
		c := raftfsm.Command{EndSessions: &raftfsm.EndSessions{}}
		propose := func() error {
			one := newProposal(c, raftfsm.MaxLevel, false, nil)
			if err := p.enqueue(one); err != nil {
				return err
			}
			_, err := one.await(t.Context())
			return err
		}
		late := make(chan error, 1)
		m.applying.once(func() {
			go func() { late <- propose() }()
			synctest.Wait()
			cancel(api.Errorf(api.NotMaster, "deposed"))
		})
		go p.runProposer(ctx)
		report(t, propose())
		synctest.Wait()
		select {
		case err := <-late:
			fails(t, err, api.NotMaster)
		default:
			t.Fatal("a proposal was forgotten")
		}
	})
}

// A spare is to take the place of a replica, and another change has been decided since its master looked: nothing is done, and the
// master and its log say so.
func TestSpareThatComesTooLate(t *testing.T) {
	lines := &testbed.Lines{}
	inSoloLogged(t, slog.New(slog.NewTextHandler(lines, nil)), nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		founders := []raftfsm.Member{{ID: "r1", Raft: "h:1"}, {ID: "r2", Raft: "h:2"}, {ID: "r3", Raft: "h:3"}}
		spare := &raftfsm.Member{ID: "s1", Raft: "h:9", Client: "h:8", Incarnation: "i", Phase: raftfsm.Standby}
		noErr(t, m.ChangeMembers(t.Context(), raftfsm.ChangeMembers{Mutation: c.mutation(), Founders: founders, Add: spare}))
		noErr(t, m.ChangeMembers(t.Context(), raftfsm.ChangeMembers{Mutation: c.mutation(), Remove: "r3"}))
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

// What each command changes in the master's own tables: if the log has done it, and if it has not,
// or perhaps not (master.observeOne, master.unproposed). The sessions, claims, delays and changes
// in a result are observed for every command, and so are the claims of its Successions.
var observed = map[string]struct{ done, undone string }{
	"NewEpoch":      {"nothing: it is before its master", "nothing"},
	"CreateSession": {"lease, mailbox", "nothing: the caller retries"},
	"RaiseLease":    {"raising", "raising"},
	"EndSessions":   {"by the result", "the outbox"},
	"Open":          {"its handle", "nothing: the caller retries"},
	"Close":         {"its handle, closing", "closing"},
	"SetContents":   {"by the result", "nothing: the caller retries"},
	"Delete":        {"the author's own copy", "nothing: the caller retries"},
	"Acquire":       {"by the result", "the outbox"},
	"Release":       {"by the result", "nothing: the caller retries"},
	"EndDelay":      {"by the result", "delays"},
	"Cancel":        {"its waiter, its handle", "the outbox"},
	"Remove":        {"by the result", "nothing: the remover retries"},
	"SetACL":        {"by the result", "nothing: the caller retries"},
	"Revoke":        {"by the result", "nothing: the caller retries"},
	"Evict":         {"by the result", "the outbox"},
	"Terminate":     {"by the result", "nothing: the caller retries"},
	"SetQuota":      {"nothing", "nothing: the caller retries"},
	"RaiseLevel":    {"nothing", "nothing: the caller retries"},
	"ChangeMembers": {"nothing", "nothing: the caller retries"},
	"SettleMember":  {"nothing", "nothing: the replica retries"},
	"Txn":           {"the author's own copies of what it deletes", "nothing: the caller retries"},
	"Restore":       {"the handles of its session", "nothing: the caller retries"},
}

// The compiler does not notice a command that the master does not observe. So the author of a new
// command must add it here.
func TestEveryCommandIsObserved(t *testing.T) {
	fields := reflect.TypeFor[raftfsm.Command]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if o := observed[name]; o.done == "" || o.undone == "" {
			t.Errorf("the command %s is new: see to it in master.observeOne and master.unproposed, and say here what they do about it; if it changes what clients may have cached, propose it with coherence.applyChange", name)
		}
	}
	if fields.NumField() != len(observed) {
		t.Errorf("there are %d commands, and %d are listed here", fields.NumField(), len(observed))
	}
}
