package raftfsm_test

import (
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

// A request is done once, and if its preconditions are met: each command that does one has
// State.once see to that.
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
