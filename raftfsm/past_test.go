package raftfsm_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// use takes the lock and releases it.
func (c *cell) use(lock namespace.Ref, by api.SessionID, h api.HandleID) api.Generation {
	c.t.Helper()
	token := c.acquire(lock, c.claim(by, h))[0].Answer.Generation
	r := c.apply(raftfsm.Command{Release: &raftfsm.Release{Mutation: c.mutation(by), Lock: lock, Handle: h, Generation: token}})
	if token == 0 || r.Code() != api.OK {
		c.t.Fatalf("acquired with token %d, and released: %v", token, r.Err())
	}
	return token
}

// ended returns the holdings of a node's lock that are remembered.
func (c *cell) ended(name api.Name) []*api.Holding {
	c.t.Helper()
	n, ok := c.state.Tree.Get(name)
	if !ok {
		c.t.Fatalf("%q is not there", name)
	}
	return c.state.Ended(n)
}

// Each way in which a holding ends is told apart, with the lock-delay that it left.
func TestWhyHoldingsEnd(t *testing.T) {
	c := newCell(t)
	operator := c.session("operator")
	file, mine := c.file(operator, "/f")
	c.use(file, operator, mine)
	for _, end := range []raftfsm.End{
		{Reason: api.ByClose}, {Reason: api.ByExpiry}, {Reason: api.ByExpiry, FailOver: true}, {Reason: api.ByOperator}, {Reason: api.ByOperator, Acknowledged: true},
	} {
		end.Session = c.session("holder")
		_, h := c.file(end.Session, "/f")
		c.acquire(file, c.claim(end.Session, h))
		c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{end}}})
		if d, delayed := c.state.Tree.Delay("/f"); delayed {
			c.apply(raftfsm.Command{EndDelay: &raftfsm.EndDelay{Name: "/f", ID: d.ID}})
		}
	}
	c.acquire(file, c.claim(operator, mine))
	c.apply(raftfsm.Command{Revoke: &raftfsm.Revoke{Mutation: c.mutation(operator), Lock: file, Why: "stuck", Now: true}})
	type how struct {
		end     api.EndReason
		delayed bool
		by      string
	}
	var got []how
	for _, h := range c.ended("/f") {
		got = append(got, how{h.End, h.Delay != 0, h.Principal})
	}
	want := []how{
		{api.ByClose, false, "operator"}, {api.ByClose, false, "holder"}, {api.ByExpiry, true, "holder"}, {api.ByFailOver, true, "holder"},
		{api.ByOperator, true, "holder"}, {api.ByOperator, false, "holder"}, {api.ByBreak, false, "operator"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the holdings ended\n  %+v\nwant\n  %+v", got, want)
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

// A holding ends with the counter of the cell, which is that of all its locks, so nothing that is granted later has a smaller token.
func TestHoldingEndsWithTheCounter(t *testing.T) {
	c := newCell(t)
	by := c.session("by")
	file, h := c.file(by, "/f")
	other, o := c.file(by, "/other")
	token := c.acquire(file, c.claim(by, h))[0].Answer.Generation
	later := c.use(other, by, o)
	c.apply(raftfsm.Command{Release: &raftfsm.Release{Mutation: c.mutation(by), Lock: file, Handle: h, Generation: token}})
	if past := c.ended("/f"); len(past) != 1 || past[0].Generation != token || past[0].Until < later || past[0].Until >= c.use(file, by, h) {
		t.Errorf("held with token %d, while another lock was, with %d: %+v", token, later, past)
	}
}

// The cell remembers the last holdings of a node, of this one and of none before it with its name.
func TestHoldingsOfANode(t *testing.T) {
	c := newCell(t)
	by := c.session("by")
	file, h := c.file(by, "/f")
	var tokens, got []api.Generation
	for range api.MaxHoldings + 3 {
		tokens = append(tokens, c.use(file, by, h))
	}
	for _, one := range c.ended("/f") {
		got = append(got, one.Generation)
	}
	if !slices.Equal(got, tokens[3:]) {
		t.Errorf("remembered are the tokens %v, of %v", got, tokens)
	}
	c.apply(raftfsm.Command{Delete: &raftfsm.Delete{Mutation: c.mutation(by), Node: file, Handle: h}})
	if file, h = c.file(by, "/f"); len(c.ended("/f")) != 0 {
		t.Errorf("a new file has the history of the one before: %+v", c.ended("/f"))
	}
	if token := c.use(file, by, h); len(c.ended("/f")) != 1 || c.ended("/f")[0].Generation != token {
		t.Errorf("%+v", c.ended("/f"))
	}
}

// Below its level a cell remembers nothing: replicas of the last release apply the same log, and their snapshots are equal.
func TestNothingIsRememberedBelowTheLevel(t *testing.T) {
	c := newCell(t)
	c.state.Level = raftfsm.HistoryLevel - 1
	by := c.session("by")
	file, h := c.file(by, "/f")
	c.use(file, by, h)
	if got := c.ended("/f"); len(got) != 0 {
		t.Fatalf("remembered are %+v", got)
	}
	c.state.Level = raftfsm.HistoryLevel
	if c.use(file, by, h); len(c.ended("/f")) != 1 {
		t.Errorf("remembered are %+v", c.ended("/f"))
	}
}

// A cell that has no room for one more takes the oldest of its nodes by turns, and does not forget the node that nobody touches.
func TestRoomForHoldings(t *testing.T) {
	c := newCell(t)
	const most = 20
	raftfsm.BoundPast(&c.state, most)
	by := c.session("by")
	quiet, h := c.file(by, "/quiet")
	for range 8 {
		c.use(quiet, by, h)
	}
	busy, b := c.file(by, "/r")
	for range api.MaxHoldings {
		c.use(busy, by, b)
	}
	if left := len(c.ended("/quiet")); left != 6 { // of 4 that had to go, each of the two gave 2
		t.Errorf("a lock that nobody touched has %d left", left)
	}
	for _, name := range []api.Name{"/a", "/b", "/r", "/s", "/z"} {
		file, h := c.file(by, name)
		for range api.MaxHoldings {
			c.use(file, by, h)
		}
	}
	total := 0
	for n := range c.state.Tree.All() {
		total += len(c.state.Ended(n))
	}
	if total != most || len(c.ended("/z")) == 0 {
		t.Errorf("%d are remembered, %d of them of the last, want %d", total, len(c.ended("/z")), most)
	}
}

// Whatever a principal does with locks of its own, very many or one often, others keep their part of the room: its own are forgotten first.
func TestNobodyTakesThePastOfOthers(t *testing.T) {
	c := newCell(t)
	const most = 40
	raftfsm.BoundPast(&c.state, most)
	alice, bob, mallory := c.session("alice"), c.session("bob"), c.session("mallory")
	for _, one := range []struct {
		by   api.SessionID
		name api.Name
	}{{alice, "/a"}, {bob, "/z"}} {
		file, h := c.file(one.by, one.name)
		for range 12 {
			c.use(file, one.by, h)
		}
	}
	for i := range 60 { // each of a new node, before, between and after those of the others
		name := api.Name(fmt.Sprintf("/%c-%d", "0mz"[i%3], i))
		file, h := c.file(mallory, name)
		c.use(file, mallory, h)
	}
	if a, b := len(c.ended("/a")), len(c.ended("/z")); a != 12 || b != 12 {
		t.Errorf("of 12 holdings each, of which all have room, %d and %d are left", a, b)
	}
	for range 20 { // some of them again
		file, h := c.file(mallory, "/0-57")
		c.use(file, mallory, h)
	}
	for i := range 5 {
		file, h := c.file(bob, api.Name(fmt.Sprintf("/bob-%d", i)))
		for range api.MaxHoldings {
			c.use(file, bob, h)
		}
	}
	total, of := 0, map[string]int{}
	for n := range c.state.Tree.All() {
		held := len(c.state.Ended(n))
		total, of[n.Creator] = total+held, of[n.Creator]+held
	}
	if total != most || of["alice"] != 12 || of["bob"] != 14 || of["mallory"] != 14 {
		t.Errorf("%d are remembered, by creator %v; want %d, of which none has more than its part while another has less", total, of, most)
	}
}

// A replica that starts from a snapshot forgets the same as the others afterwards.
func TestForgettingGoesOnFromASnapshot(t *testing.T) {
	c := newCell(t)
	raftfsm.BoundPast(&c.state, 10)
	by := c.session("by")
	for i := range 8 {
		file, h := c.file(by, api.Name(fmt.Sprintf("/%d", i)))
		for range 2 {
			c.use(file, by, h)
		}
	}
	var snapshot bytes.Buffer
	if _, err := c.state.WriteTo(&snapshot); err != nil {
		t.Fatal(err)
	}
	other, err := raftfsm.ReadState(&snapshot, raftfsm.MaxLevel)
	if err != nil {
		t.Fatal(err)
	}
	raftfsm.BoundPast(&other, 10)
	for i := range 5 {
		h := &api.Holding{Session: 1, Mode: api.Exclusive, Generation: api.Generation(c.state.Counter), Until: api.Generation(c.state.Counter), End: api.ByClose}
		for _, state := range []*raftfsm.State{&c.state, &other} {
			raftfsm.AddPast(state, api.Name(fmt.Sprintf("/%d", i)), h)
		}
	}
	a, aerr := c.state.Hash()
	b, berr := other.Hash()
	if a != b || aerr != nil || berr != nil {
		t.Errorf("the two have forgotten different holdings, %v, %v", aerr, berr)
	}
}

// A state that remembers that two held a lock at once, or what cannot be, is corrupt: no replica starts from it.
func TestHoldingsThatCannotBe(t *testing.T) {
	holding := func(edit func(*api.Holding)) *api.Holding {
		h := &api.Holding{Session: 1, Mode: api.Exclusive, Generation: 2, Until: 3, End: api.ByClose}
		edit(h)
		return h
	}
	for name, list := range map[string][]*api.Holding{
		"two at once": {holding(func(h *api.Holding) { h.Until = 5 }), holding(func(h *api.Holding) { h.Generation, h.Until = 4, 6 })},
		"one twice":   {holding(func(*api.Holding) {}), holding(func(*api.Holding) {})},
		"shared":      {holding(func(h *api.Holding) { h.Until = 4 }), holding(func(h *api.Holding) { h.Generation, h.Until, h.Mode = 4, 6, api.Shared })},
		"goes on":     {holding(func(h *api.Holding) { h.Until = 0 })},
		"no end":      {holding(func(h *api.Holding) { h.End = 0 })},
		"no mode":     {holding(func(h *api.Holding) { h.Mode = 0 })},
		"late":        {holding(func(h *api.Holding) { h.Until = 1 << 40 })},
		"held now":    {holding(func(*api.Holding) {})},
		"nobody's":    nil,
	} {
		c := newCell(t)
		by := c.session("by")
		file, h := c.file(by, "/f")
		for range 3 {
			c.file(c.session(name), "/g")
		}
		token := c.acquire(file, c.claim(by, h))[0].Answer.Generation
		if name == "held now" {
			list[0].Until = token
		}
		at := api.Name("/f")
		if list == nil {
			at, list = "/none", []*api.Holding{holding(func(*api.Holding) {})}
		}
		good := holding(func(h *api.Holding) { h.Generation, h.Until = 1, 1 })
		if raftfsm.AddPast(&c.state, "/g", good); c.state.Check() != nil {
			t.Fatalf("%s: %v", name, c.state.Check())
		}
		for _, one := range list {
			raftfsm.AddPast(&c.state, at, one)
		}
		var snapshot bytes.Buffer
		if _, err := c.state.WriteTo(&snapshot); err != nil {
			t.Fatal(err)
		}
		if _, err := raftfsm.ReadState(&snapshot, raftfsm.MaxLevel); api.CodeOf(err) != api.Corrupt {
			t.Errorf("%s: it is read: %v", name, err)
		}
	}
}

// What is restored from a backup has no history, and a backup has none.
func TestBackupsHaveNoHistory(t *testing.T) {
	c := newCell(t)
	by := c.session("by")
	file, h := c.file(by, "/f")
	c.use(file, by, h)
	backup := c.state.ForBackup()
	n, _ := backup.Tree.Get("/f")
	if got := backup.Ended(n); len(got) != 0 || len(c.ended("/f")) != 1 {
		t.Errorf("the backup has %+v, and the cell %+v", got, c.ended("/f"))
	}
	if err := backup.Check(); err != nil {
		t.Error(err)
	}
}
