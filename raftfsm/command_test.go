package raftfsm_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

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
		if got := c.By(); got != by {
			t.Errorf("Command.By returns session %v for %s; want %v", got, name, by)
		}
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

// What a request declares finished is finished while the request is done: its successions cannot grant it any more.
func TestDeclarationPrecedesTheHandOver(t *testing.T) {
	c := newCell(t)
	id := c.session("a")
	lock, h := c.file(id, "/lock")
	_, h2 := c.file(id, "/lock")
	held := c.acquire(lock, c.claim(id, h))[0].Answer
	waiting := c.claim(id, h2)
	if r := c.acquire(lock, waiting)[0]; !r.Pending {
		t.Fatalf("a second claim: %+v", r)
	}
	r := c.apply(raftfsm.Command{Release: &raftfsm.Release{
		Mutation: c.mutation(id), Lock: lock, Handle: h, Generation: held.Generation,
		Successions: []raftfsm.Succession{{Lock: lock, Claims: []raftfsm.Claim{waiting}}},
	}})
	if r.Code() != api.OK || r.Claims[0].Pending || r.Claims[0].Answer.Code() != api.InvalidArgument {
		t.Errorf("the release: %v; the claim that it declares finished: %+v", r.Err(), r.Claims[0])
	}
}

// A retry gets the first answer, also from a later master, and does nothing (decision 13).
func TestRetriesAreAnsweredOnce(t *testing.T) {
	c := newCell(t)
	id := c.session("a")
	file, _ := c.file(id, "/file")
	m := c.mutation(id)
	write := raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: m, Node: file, Contents: []byte("x")}}
	first := c.apply(write)
	stopIf(t, first.Code() != api.OK || first.Stat.Content != api.Generation(c.state.Counter), "%+v", first)
	c.elect()
	again := c.apply(write)
	if again.Code() != api.OK || again.Stat.Content != first.Stat.Content {
		t.Errorf("the retry was answered %+v", again.Answer)
	}
	if node, _ := c.state.Tree.Get("/file"); node.Content != first.Stat.Content {
		t.Errorf("the retry was done again: content generation %d", node.Content)
	}
	other := m
	other.Hash++
	if r := c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: other, Node: file, Contents: []byte("y")}}); r.Code() != api.InvalidArgument {
		t.Errorf("the number was used for something else: %+v", r.Answer)
	}
	c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: id, Reason: api.ByClose}}}})
	if r := c.apply(write); r.Code() != api.SessionExpired {
		t.Errorf("a retry under an ended session: %+v", r.Answer)
	}
	if again, ok := c.state.Sessions.ByNonce([]byte("a")); ok {
		t.Errorf("the ended session %v is found by its nonce", again.ID)
	}
}

// CreateSession twice with the same nonce makes one session.
func TestCreateSessionOnce(t *testing.T) {
	c := newCell(t)
	if a, b := c.session("a"), c.session("a"); a != b {
		t.Errorf("one nonce, two sessions: %v and %v", a, b)
	}
}

// A grant is repeated only while the lock is held.
func TestReplayedGrant(t *testing.T) {
	c := newCell(t)
	id := c.session("a")
	lock, h := c.file(id, "/lock")
	claim := c.claim(id, h)
	first := c.acquire(lock, claim)[0].Answer
	if again := c.acquire(lock, claim)[0].Answer; again.Code() != api.OK || again.Generation != first.Generation {
		t.Errorf("the retry of a valid grant: %+v", again)
	}
	c.apply(raftfsm.Command{Release: &raftfsm.Release{
		Mutation: session.Mutation{Session: id, Number: 3, HighestIssued: 3, Outstanding: []api.RequestNumber{2, 3}, Hash: 1},
		Lock:     lock, Handle: h, Generation: first.Generation,
	}})
	if again := c.acquire(lock, claim)[0].Answer; again.Code() != api.LockLost {
		t.Errorf("the retry of a grant that was released: %+v", again)
	}
}
