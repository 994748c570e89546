package raftfsm_test

import (
	"fmt"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// restore restores a backup of nothing but the lists, when no session but the operator's is left.
func (c *restoring) restore(id api.CellID, counter uint64) {
	c.t.Helper()
	c.step(c.operator, raftfsm.Restore{Begin: &raftfsm.RestoreBegin{Cell: "local", CellID: id, Level: 1, Counter: counter, Nodes: 3}}, api.OK)
	c.add(api.OK, 1, backedUp("", nil), backedUp("/acl", nil), backedUp("/acl/everyone", nil))
	c.step(c.operator, raftfsm.Restore{Seal: &raftfsm.RestoreSeal{Why: "because"}}, api.OK)
	var ends []raftfsm.End
	for one := range c.state.Sessions.All() {
		if one.ID != c.operator {
			ends = append(ends, raftfsm.End{Session: one.ID, Reason: api.ByOperator})
		}
	}
	c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: ends}})
	c.step(c.operator, raftfsm.Restore{Finish: true}, api.OK)
}

// token locks a file in a new session, and returns the token.
func (c *restoring) token(session string) api.Generation {
	c.t.Helper()
	id := c.session(session)
	file, handle := c.file(id, api.Name("/"+session))
	r := c.acquire(file, c.claim(id, handle))[0]
	if r.Answer.Generation == 0 {
		c.t.Fatalf("%+v", r)
	}
	return r.Answer.Generation
}

// A cell goes back to a backup, goes on, and is lost. The next one is restored from the same backup, which knows nothing of that: no token
// that it issues may be one that was issued, or below one.
func TestTokensOfABackupThatIsRestoredTwice(t *testing.T) {
	lost := newRestoring(t)
	for i := range 5 { // above the generations of the nodes in the backup
		lost.token(fmt.Sprint("early-", i))
	}
	id, counter := lost.state.CellID, lost.state.Counter
	newest := lost.token("late")
	for round := range 3 {
		lost.restore(id, counter)
		if is := lost.token(fmt.Sprint("after-", round)); is <= newest {
			t.Fatalf("restore %d of a cell that goes on: token %d after %d", round, is, newest)
		} else {
			newest = is
		}
	}

	next := newRestoring(t)
	next.state.CellID = "ffeeddccbbaa99887766554433221100" // of another bootstrap
	next.restore(id, counter)
	if is := next.token("new"); is <= newest || next.state.CellID != id {
		t.Errorf("the next cell, %s, issues token %d after %d of the lost one, %s", next.state.CellID, is, newest, id)
	}
	if next.state.Counter < uint64(newest)+raftfsm.RestoreGap/2 {
		t.Errorf("tokens go on at %d after %d: there is no room for what the backup does not know", next.state.Counter, newest)
	}
}

// The highest counter that a cell can be restored with leaves it tokens to issue.
func TestTokensAfterTheHighestCounter(t *testing.T) {
	const highest = api.MaxGeneration - 2*raftfsm.RestoreGap
	c := newRestoring(t)
	c.step(c.operator, raftfsm.Restore{Begin: &raftfsm.RestoreBegin{Cell: "local", Level: 1, Counter: highest + 1, Nodes: 3}}, api.InvalidArgument)
	c.restore("ffeeddccbbaa99887766554433221100", highest)
	if is := c.token("after"); is > api.MaxGeneration {
		t.Errorf("token %d", is)
	}
	if left := api.MaxGeneration - c.state.Counter; left < raftfsm.RestoreGap-10 {
		t.Errorf("%d numbers are left", left)
	}
	c.restore(c.state.CellID, highest) // its own backup takes none of them
}

// A generation stands for one value of a path for good, over every restore: of a backup of another cell, whose numbers are those that this
// one has issued, of one of its own, and of an earlier one of the cell whose tokens it goes on with. So nobody who writes on condition of what was
// read before overwrites anything else. Nor does a generation go back.
func TestGenerationsAfterARestore(t *testing.T) {
	c := newRestoring(t)
	type seen struct{ instance, content, acls, lock api.Generation }
	of := func(name api.Name) seen {
		n, there := c.state.Tree.Get(name)
		if !there {
			t.Fatal(name, "is gone")
		}
		return seen{n.Instance, n.Content, n.ACLs, n.Lock}
	}
	for range 20 { // the nodes of the backup, and what the cell has, are of the same numbers
		c.token(fmt.Sprint("early-", c.state.Counter))
	}
	own := c.state.CellID
	const foreign = "ffeeddccbbaa99887766554433221100"
	newest := of("/acl/everyone")
	for i, from := range []struct {
		id      api.CellID
		counter uint64
	}{{foreign, 1000}, {foreign, 1000}, {foreign, 10}, {own, 20}, {own, 20}} {
		before := api.Generation(c.state.Counter)
		c.restore(from.id, from.counter)
		is := of("/acl/everyone")
		if least := min(is.instance, is.content, is.acls, is.lock); least <= before || least <= max(newest.instance, newest.content, newest.acls, newest.lock) || uint64(least) <= from.counter {
			t.Errorf("restore %d, of a backup whose counter is %d, into a cell whose counter is %d: the generations are %+v after %+v", i, from.counter, before, is, newest)
		}
		if is.content > api.Generation(c.state.Counter) {
			t.Errorf("restore %d: the generations are %+v, and the counter is %d", i, is, c.state.Counter)
		}
		newest = is
	}
}
