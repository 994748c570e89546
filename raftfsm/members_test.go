package raftfsm_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// founders are the replicas of a cell that was never changed.
func founders(n int) (list []raftfsm.Member) {
	for i := range n {
		list = append(list, raftfsm.Member{ID: fmt.Sprint("r", i+1), Raft: fmt.Sprintf("h%d:1", i+1)})
	}
	return list
}

// newcomer is a replica that may join.
func newcomer(id string) *raftfsm.Member {
	return &raftfsm.Member{ID: id, Raft: id + ":1", Client: id + ":2", Incarnation: "of-" + id}
}

// changingCell is a cell of three replicas and those who change them.
type changingCell struct {
	*cell
	operator api.SessionID
}

func newChangingCell(t *testing.T) changingCell {
	c := newCell(t)
	return changingCell{c, c.session("a")}
}

func (c changingCell) change(m raftfsm.ChangeMembers, want api.Code) {
	c.t.Helper()
	m.Mutation, m.Founders = c.mutation(c.operator), founders(3)
	c.want(c.apply(raftfsm.Command{ChangeMembers: &m}), want)
}

func (c changingCell) settle(id string, phase raftfsm.MemberPhase) {
	c.t.Helper()
	c.want(c.apply(raftfsm.Command{SettleMember: &raftfsm.SettleMember{ID: id, Phase: phase}}), api.OK)
}

// use has a spare take the place of a replica.
func (c changingCell) use(spare, dead string) {
	c.t.Helper()
	c.want(c.apply(raftfsm.Command{SettleMember: &raftfsm.SettleMember{ID: spare, Phase: raftfsm.Standby, Replaces: dead}}), api.OK)
}

func (c changingCell) are(want string) {
	c.t.Helper()
	var list []string
	for _, m := range c.state.Roster.Members {
		list = append(list, m.ID+" "+m.Phase.String())
	}
	equal(c.t, strings.Join(list, ", "), want, "%s")
}

// Spares stand by until each takes the place of a replica, one change at a time; one that was removed never joins.
func TestSpares(t *testing.T) {
	c := newChangingCell(t)
	spare := func(id string) *raftfsm.Member {
		m := newcomer(id)
		m.Phase = raftfsm.Standby
		return m
	}
	of := spare("r4")
	of.Replaces = "r1"
	c.change(raftfsm.ChangeMembers{Add: of}, api.InvalidArgument)
	for _, id := range []string{"r4", "r5", "r6"} {
		c.change(raftfsm.ChangeMembers{Add: spare(id)}, api.OK)
	}
	c.are("r1 member, r2 member, r3 member, r4 spare, r5 spare, r6 spare")
	c.change(raftfsm.ChangeMembers{Remove: "r5"}, api.OK)
	c.use("r5", "r1")
	c.use("r4", "r6") // which is no member
	c.use("r4", "r9")
	c.settle("r4", raftfsm.Joining)
	c.are("r1 member, r2 member, r3 member, r4 spare, r5 left, r6 spare")
	c.use("r4", "r1")
	c.use("r6", "r2") // at the same time
	c.are("r1 member, r2 member, r3 member, r4 joining, r5 left, r6 spare")
	c.settle("r4", raftfsm.Joining)
	c.use("r6", "r2")
	c.are("r1 leaving, r2 member, r3 member, r4 member, r5 left, r6 spare")
	c.settle("r1", raftfsm.Leaving)
	c.use("r6", "r1") // it has left
	c.are("r1 left, r2 member, r3 member, r4 member, r5 left, r6 spare")
	c.use("r6", "r2")
	c.are("r1 left, r2 member, r3 member, r4 member, r5 left, r6 joining")
}

// That a replica leaves can be taken back until it has left. It goes on from where it is, and takes nobody's place any more.
func TestRemovalIsTakenBack(t *testing.T) {
	c := newChangingCell(t)
	c.change(raftfsm.ChangeMembers{Keep: "r1"}, api.NotFound)
	c.change(raftfsm.ChangeMembers{Remove: "r1"}, api.OK)
	c.change(raftfsm.ChangeMembers{Keep: "r2"}, api.NotFound)
	c.change(raftfsm.ChangeMembers{Keep: "r1", Remove: "r1"}, api.InvalidArgument)
	c.change(raftfsm.ChangeMembers{Keep: "r1"}, api.OK)
	c.settle("r1", raftfsm.Leaving) // it was too late
	c.are("r1 joining, r2 member, r3 member")
	c.settle("r1", raftfsm.Joining)
	c.are("r1 member, r2 member, r3 member")
	replace := newcomer("r4")
	replace.Replaces = "r1"
	c.change(raftfsm.ChangeMembers{Add: replace}, api.OK)
	c.change(raftfsm.ChangeMembers{Remove: "r4"}, api.OK)
	c.change(raftfsm.ChangeMembers{Keep: "r4"}, api.OK)
	c.settle("r4", raftfsm.Joining)
	c.are("r1 leaving, r2 member, r3 member, r4 member")
	c.change(raftfsm.ChangeMembers{Keep: "r1"}, api.OK)
	c.settle("r1", raftfsm.Joining)
	c.change(raftfsm.ChangeMembers{Remove: "r4"}, api.OK)
	c.change(raftfsm.ChangeMembers{Keep: "r4"}, api.OK)
	c.settle("r4", raftfsm.Joining)
	c.are("r1 member, r2 member, r3 member, r4 member")
	c.change(raftfsm.ChangeMembers{Remove: "r4"}, api.OK)
	c.settle("r4", raftfsm.Leaving)
	c.change(raftfsm.ChangeMembers{Keep: "r4"}, api.NotFound)
	failIf(t, c.state.Roster.Author != "a", "the last change is of %q", c.state.Roster.Author)
}

// A replica joins, takes the place of another, and its id is never used again; one change is under way at a time.
func TestMembers(t *testing.T) {
	c := newChangingCell(t)
	c.settle("r4", raftfsm.Joining)
	c.change(raftfsm.ChangeMembers{}, api.InvalidArgument)
	c.change(raftfsm.ChangeMembers{Add: newcomer("r1")}, api.Exists)
	c.change(raftfsm.ChangeMembers{Remove: "r9"}, api.NotFound)
	c.are("")

	replace := newcomer("r4")
	replace.Replaces = "r9"
	c.change(raftfsm.ChangeMembers{Add: replace}, api.NotFound)
	replace.Replaces = "r1"
	c.change(raftfsm.ChangeMembers{Add: replace}, api.OK)
	c.are("r1 member, r2 member, r3 member, r4 joining")
	c.change(raftfsm.ChangeMembers{Add: newcomer("r5")}, api.Unavailable)
	c.change(raftfsm.ChangeMembers{Remove: "r2"}, api.Unavailable)
	c.settle("r4", raftfsm.Leaving) // which it is not
	c.are("r1 member, r2 member, r3 member, r4 joining")
	c.settle("r4", raftfsm.Joining)
	c.are("r1 leaving, r2 member, r3 member, r4 member")
	c.change(raftfsm.ChangeMembers{Remove: "r1"}, api.Unavailable)
	c.settle("r4", raftfsm.Joining) // again
	c.settle("r1", raftfsm.Leaving)
	c.are("r1 left, r2 member, r3 member, r4 member")
	c.change(raftfsm.ChangeMembers{Add: newcomer("r1")}, api.Exists)
	c.change(raftfsm.ChangeMembers{Remove: "r1"}, api.NotFound)
	taken := newcomer("r5")
	taken.Raft = "h2:1"
	c.change(raftfsm.ChangeMembers{Add: taken}, api.Exists)
	taken.Raft = "h1:1" // of one that has left
	c.change(raftfsm.ChangeMembers{Add: taken}, api.OK)
	c.change(raftfsm.ChangeMembers{Remove: "r5"}, api.OK) // on second thoughts
	c.are("r1 left, r2 member, r3 member, r4 member, r5 leaving")
	c.settle("r5", raftfsm.Joining) // it was too late
	c.settle("r5", raftfsm.Leaving)
	for _, id := range []string{"r2", "r3"} {
		c.change(raftfsm.ChangeMembers{Remove: id}, api.OK)
		c.settle(id, raftfsm.Leaving)
	}
	c.change(raftfsm.ChangeMembers{Remove: "r4"}, api.InvalidArgument)
	c.are("r1 left, r2 left, r3 left, r4 member, r5 left")

	var b bytes.Buffer
	must(c.state.WriteTo(&b))(t)
	read, err := raftfsm.ReadState(&b, raftfsm.MaxLevel)
	if err != nil || fmt.Sprint(read.Roster) != fmt.Sprint(c.state.Roster) {
		t.Errorf("%+v after a snapshot, %v; before %+v", read.Roster, err, c.state.Roster)
	}
	if kept := c.state.ForBackup().Roster; len(kept.Members) > 0 {
		t.Error("a backup has the addresses of the replicas:", kept)
	}
}

// The state refuses a member that cannot be a replica, from any proposer.
func TestMembersAreWellFormed(t *testing.T) {
	c := newCell(t)
	a := c.session("a")
	for what, edit := range map[string]func(*raftfsm.ChangeMembers){
		"no id":             func(m *raftfsm.ChangeMembers) { m.Add.ID = "" },
		"a long id":         func(m *raftfsm.ChangeMembers) { m.Add.ID = strings.Repeat("r", 65) },
		"an id with spaces": func(m *raftfsm.ChangeMembers) { m.Add.ID = "r 4" },
		"no incarnation":    func(m *raftfsm.ChangeMembers) { m.Add.Incarnation = "" },
		"no raft address":   func(m *raftfsm.ChangeMembers) { m.Add.Raft = "" },
		"no client address": func(m *raftfsm.ChangeMembers) { m.Add.Client = "" },
		"no host":           func(m *raftfsm.ChangeMembers) { m.Add.Raft = ":7431" },
		"no port":           func(m *raftfsm.ChangeMembers) { m.Add.HTTP = "host" },
		"a long address":    func(m *raftfsm.ChangeMembers) { m.Add.Client = strings.Repeat("h", 255) + ":1" },
		"no founders":       func(m *raftfsm.ChangeMembers) { m.Founders = nil },
		"a founder twice":   func(m *raftfsm.ChangeMembers) { m.Founders = append(m.Founders, m.Founders[0]) },
		"too many founders": func(m *raftfsm.ChangeMembers) { m.Founders = founders(raftfsm.MaxMembers + 1) },
		"both":              func(m *raftfsm.ChangeMembers) { m.Remove = "r1" },
	} {
		m := raftfsm.ChangeMembers{Mutation: c.mutation(a), Founders: founders(3), Add: newcomer("n1")}
		edit(&m)
		c.want(c.apply(raftfsm.Command{ChangeMembers: &m}), api.InvalidArgument)
		if len(c.state.Roster.Members) > 0 {
			t.Error(what, c.state.Roster)
		}
	}
	ref, _ := c.file(a, "/acl/operators")
	c.want(c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(a), Node: ref, Contents: []byte("a\n")}}), api.OK)
	stranger := raftfsm.ChangeMembers{Mutation: c.mutation(c.session("b")), Founders: founders(3), Add: newcomer("n1")}
	c.want(c.apply(raftfsm.Command{ChangeMembers: &stranger}), api.PermissionDenied)
	m := raftfsm.ChangeMembers{Mutation: c.mutation(a), Founders: founders(raftfsm.MaxMembers), Add: newcomer("n1")}
	c.want(c.apply(raftfsm.Command{ChangeMembers: &m}), api.QuotaExceeded)
	failIf(t, (raftfsm.Command{ChangeMembers: &m}).Level() != 3, "it may be in a log of level 2")
}

// A replica that was to be replaced is kept beside the one that has its place. That makes no more members than a cell may have.
func TestKeepingMakesNotTooManyMembers(t *testing.T) {
	c := newChangingCell(t)
	for i := range raftfsm.MaxMembers - 3 {
		id := fmt.Sprint("n", i)
		c.change(raftfsm.ChangeMembers{Add: newcomer(id)}, api.OK)
		c.settle(id, raftfsm.Joining)
	}
	c.change(raftfsm.ChangeMembers{Add: newcomer("more")}, api.QuotaExceeded)
	replace := newcomer("more")
	replace.Replaces = "r1"
	c.change(raftfsm.ChangeMembers{Add: replace}, api.OK)
	c.settle("more", raftfsm.Joining)
	c.change(raftfsm.ChangeMembers{Keep: "r1"}, api.QuotaExceeded)
	members := 0
	for _, m := range c.state.Roster.Members {
		if m.Phase == raftfsm.Settled || m.Phase == raftfsm.Joining {
			members++
		}
	}
	failIf(t, members > raftfsm.MaxMembers, "%d members; at most %d", members, raftfsm.MaxMembers)
}
