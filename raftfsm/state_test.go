package raftfsm_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// A command of another epoch than its log entry's term, or of an epoch that has not begun, does nothing: late decisions
// of a deposed master have no effect (decision 4).
func TestStaleEpochsAreRefused(t *testing.T) {
	c := newCell(t)
	id := c.session("a")
	lock, h := c.file(id, "/lock")
	if r := c.acquire(lock, c.claim(id, h)); r[0].Answer.Code() != api.OK {
		t.Fatal(r[0].Answer.Err())
	}
	old := c.term
	c.elect()
	before := c.state
	expiry := raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: id, Reason: api.ByExpiry}}}}
	if r := c.applyIn(old, expiry); r.Code() != api.StaleEpoch || len(r.Ended) > 0 {
		t.Errorf("an expiry proposed in epoch %d and committed in %d: %+v", old, c.term, r)
	}
	c.term++ // a leader that has not announced itself
	if r := c.applyIn(c.term-1, expiry); r.Code() != api.StaleEpoch || len(r.Ended) > 0 {
		t.Errorf("an expiry of the epoch before, committed under the next leader: %+v", r)
	}
	if r := c.apply(expiry); r.Code() != api.StaleEpoch || len(r.Ended) > 0 {
		t.Errorf("an expiry before the epoch's first entry: %+v", r)
	}
	if _, ok := c.state.Sessions.Get(id); !ok || c.state.Counter != before.Counter {
		t.Error("a refused command did something")
	}
}

func hash(t testing.TB, s raftfsm.State) string {
	t.Helper()
	return must(s.Hash())(t)
}

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
	stopIf(c.t, r.Answer.Generation == 0, "%+v", r)
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

// everyCommand calls do with each command, empty, and with its name.
func everyCommand(do func(name string, c raftfsm.Command)) {
	fields := reflect.TypeFor[raftfsm.Command]()
	for i := range fields.NumField() {
		var c raftfsm.Command
		reflect.ValueOf(&c).Elem().Field(i).Set(reflect.New(fields.Field(i).Type.Elem()))
		do(fields.Field(i).Name, c)
	}
}

// State.Apply, Command.Successions and Command.By must know every command.
func TestEveryCommandIsKnown(t *testing.T) {
	nothing := newCell(t).apply(raftfsm.Command{}).Answer
	everyCommand(func(name string, c raftfsm.Command) {
		if name != "NewEpoch" && reflect.DeepEqual(newCell(t).apply(c).Answer, nothing) {
			t.Errorf("State.apply does not know %s: it is answered as an empty command", name)
		}
		wanted := enterClaims(reflect.ValueOf(&c).Elem())
		var found []raftfsm.Claim
		for _, next := range c.Successions() {
			found = append(found, next.Claims...)
		}
		if !reflect.DeepEqual(found, wanted) {
			t.Errorf("Command.Successions returns the claims %v of %s; it carries %v: add it there", found, name, wanted)
		}
		by := api.SessionID(0)
		if request := reflect.ValueOf(c).FieldByName(name).Elem().FieldByName("Mutation"); request.IsValid() {
			by = 7
			request.Set(reflect.ValueOf(session.Mutation{Session: by}))
		} else if name == "Acquire" {
			by = wanted[0].Mutation.Session
		}
		failIf(t, c.By() != by, "Command.By returns session %v for %s; want %v", c.By(), name, by)
	})
}

// A request is done once, and if its preconditions are met: each command that does one has State.once see to that.
func TestEveryRequestIsDoneOnce(t *testing.T) {
	everyCommand(func(name string, command raftfsm.Command) {
		c := newCell(t)
		request := mutationOf(command)
		if request == nil || name == "Cancel" { // which is asked for under the number of another
			return
		}
		*request = c.mutation(c.session("a"))
		conditions := setField(command).Elem().FieldByName("Preconditions")
		if conditions.IsValid() {
			conditions.Set(reflect.ValueOf([]raftfsm.Precondition{{Lock: "/none"}}))
		}
		first := c.apply(command)
		if got := first.Code(); conditions.IsValid() && got != api.BadSequencer {
			t.Errorf("%s whose precondition is not met is answered %v: pass its Preconditions to State.once", name, got)
		}
		request.Hash++
		if second := c.apply(command); second.Refusal == nil || second.Refusal.Cause != refusal.RequestReused {
			t.Errorf("%s, and another under its number, are answered %v and %v: do it inside State.once", name, first.Err(), second.Err())
		}
	})
}

// enterClaims puts a claim into every list of claims in v, and returns them.
func enterClaims(v reflect.Value) (entered []raftfsm.Claim) {
	switch {
	case v.Type() == reflect.TypeFor[[]raftfsm.Claim]():
		entered = []raftfsm.Claim{{Mutation: session.Mutation{Session: 5, Number: 1}}}
		v.Set(reflect.ValueOf(entered))
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return enterClaims(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return enterClaims(v.Index(0))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			entered = append(entered, enterClaims(v.Field(i))...)
		}
	}
	return entered
}

// Retries are answered with the refusal of a cancelled request. A replica that does not know its cause would answer otherwise than
// the others, so it takes no such entry.
func TestCancelsOfUnknownCauses(t *testing.T) {
	unknown := refusal.Cause(1)
	for unknown.IsKnown() {
		unknown++
	}
	for name, test := range map[string]struct {
		because *refusal.Refusal
		newer   bool
		ok      bool
	}{
		"a known cause":           {because: &refusal.Refusal{Cause: refusal.WaitersComeFirst}, ok: true},
		"no refusal":              {ok: true},
		"a cause of a newer cell": {because: &refusal.Refusal{Cause: unknown}, newer: true},
		"no cause":                {because: &refusal.Refusal{}},
	} {
		cancel := raftfsm.Command{Cancel: &raftfsm.Cancel{Refusal: test.because}}
		entry, err := raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{cancel, cancel}}.Encode()
		noErr(t, err, name)
		_, err = raftfsm.DecodeEntry(entry)
		if (err == nil) != test.ok || !test.ok && !errors.Is(err, api.Corrupt) || errors.Is(err, raftfsm.ErrNewer) != test.newer {
			t.Errorf("%s: DecodeEntry returns %v; may be read: %v, newer: %v", name, err, test.ok, test.newer)
		}
	}
}

// A refusal is final only if the request was not done and never will be. The refusal of a command that was committed in
// a later epoch is not: its client sends it again.
func TestRefusalThatIsNotFinal(t *testing.T) {
	c := newCell(t)
	id := c.session("a")
	lock, h := c.file(id, "/lock")
	write := raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(id), Node: lock}}
	old := c.term
	c.elect()
	var e *api.Error
	if r := c.applyIn(old, write); !errors.As(r.Err(), &e) || e.Code != api.StaleEpoch || e.Final {
		t.Errorf("a write of an earlier epoch: %v, final", r.Err())
	}
	report(t, c.apply(write).Err(), "sent again")
	release := raftfsm.Command{Release: &raftfsm.Release{Mutation: c.mutation(id), Lock: lock, Handle: h, Generation: 1}}
	if r := c.apply(release); !errors.As(r.Err(), &e) || e.Code != api.NotHeld || !e.Final {
		t.Errorf("the release of a lock that is not held: %v, not final", r.Err())
	}
}

// A holding that somebody cut short says who did, and why, however its end then came: a holder that gives the lock up when it hears
// of that, as it should, does not make it look as if nothing had happened.
func TestHoldingSaysWhoEndedIt(t *testing.T) {
	c := newCell(t)
	ops, holder := c.session("ops"), c.session("holder")
	file, h := c.file(holder, "/f")
	hold := func() api.Generation { return c.acquire(file, c.claim(holder, h))[0].Answer.Generation }
	breakIt := func(now bool) {
		c.apply(raftfsm.Command{Revoke: &raftfsm.Revoke{Mutation: c.mutation(ops), Lock: file, Why: "it hangs", Now: now}})
	}
	end := func(reason api.EndReason) {
		c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: holder, Reason: reason, Acknowledged: true}}}})
		holder = c.session("holder")
		_, h = c.file(holder, "/f")
	}
	token := hold()
	breakIt(false)
	c.apply(raftfsm.Command{Release: &raftfsm.Release{Mutation: c.mutation(holder), Lock: file, Handle: h, Generation: token}})
	token = hold()
	breakIt(false)
	c.apply(raftfsm.Command{Evict: &raftfsm.Evict{Lock: file, Generation: token, Holders: []namespace.Owner{{Session: holder, Handle: h}}}})
	hold()
	breakIt(true)
	hold()
	breakIt(false)
	end(api.ByExpiry)
	hold()
	c.apply(raftfsm.Command{Terminate: &raftfsm.Terminate{Mutation: c.mutation(ops), Target: holder, Why: "it hangs"}})
	end(api.ByOperator)
	hold()
	end(api.ByClose)
	var got []api.EndReason
	for i, one := range c.ended("/f") {
		got = append(got, one.End)
		by, why := "ops", "it hangs"
		if one.End == api.ByClose {
			by, why = "", ""
		}
		if one.EndedBy != by || one.EndedWhy != why {
			t.Errorf("holding %d, which %v ended, says that %q did: %q", i, one.End, one.EndedBy, one.EndedWhy)
		}
	}
	if want := []api.EndReason{api.ByBreak, api.ByBreak, api.ByBreak, api.ByBreak, api.ByOperator, api.ByClose}; !slices.Equal(got, want) {
		t.Errorf("the holdings ended by %v; want %v", got, want)
	}
}
