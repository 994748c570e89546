package raftfsm_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// An epoch begins once: two masters of one epoch would use the same numbers for
// grants, events and tickets. An epoch before the cell's never begins.
func TestEpochBeginsOnce(t *testing.T) {
	c := newCell(t)
	begin := raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Secret: []byte("other")}}
	if r := c.apply(begin); r.Code() != api.StaleEpoch {
		t.Errorf("epoch %d began a second time: %v", c.term, r.Answer.Err())
	}
	c.term--
	if r := c.apply(begin); r.Code() != api.StaleEpoch || c.state.Epoch != api.Epoch(c.term+1) {
		t.Errorf("epoch %d began after its successor: %v; the cell is in %d", c.term, r.Answer.Err(), c.state.Epoch)
	}
	c.term++
	if id := c.session("a"); id == 0 {
		t.Error("the epoch does not go on")
	}
}

// A command of another epoch than its log entry's term, or of an epoch that has
// not begun, does nothing: late decisions of a deposed master have no effect
// (decision 4).
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

// Release and the next grant are one entry. Ended sessions, answered claims and
// withdrawn claims are skipped (decision 8).
func TestHandOverInOneEntry(t *testing.T) {
	c := newCell(t)
	a, b, dead, withdrawn := c.session("a"), c.session("b"), c.session("dead"), c.session("withdrawn")
	lock, ha := c.file(a, "/lock")
	_, hb := c.file(b, "/lock")
	_, hd := c.file(dead, "/lock")
	_, hw := c.file(withdrawn, "/lock")
	held := c.acquire(lock, c.claim(a, ha))[0].Answer
	claims := []raftfsm.Claim{c.claim(dead, hd), c.claim(withdrawn, hw), c.claim(b, hb)}
	for _, r := range c.acquire(lock, claims...) {
		if !r.Pending || r.Answer.Code() != api.LockHeld || !slices.Equal(r.Answer.Refusal.Holders, []api.SessionID{a}) {
			t.Errorf("a claim on a held lock: %+v", r)
		}
	}
	c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: dead, Reason: api.ByExpiry}}}})
	if r := c.apply(raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: claims[1].Mutation}}); r.Code() != api.Cancelled {
		t.Errorf("withdrawing a request that waits: %+v", r.Answer)
	}
	r := c.apply(raftfsm.Command{Release: &raftfsm.Release{
		Mutation: c.mutation(a), Lock: lock, Handle: ha, Generation: held.Generation,
		Successions: []raftfsm.Succession{{Lock: lock, Claims: claims}},
	}})
	codes := []api.Code{r.Claims[0].Answer.Code(), r.Claims[1].Answer.Code(), r.Claims[2].Answer.Code()}
	if r.Code() != api.OK || !slices.Equal(codes, []api.Code{api.SessionExpired, api.Cancelled, api.OK}) {
		t.Fatalf("the release: %v, its successors: %v", r.Err(), codes)
	}
	if next := r.Claims[2].Answer; next.Generation <= held.Generation {
		t.Errorf("token %d follows %d", next.Generation, held.Generation)
	}
	if r := c.apply(raftfsm.Command{Cancel: &raftfsm.Cancel{Mutation: claims[2].Mutation}}); r.Code() != api.OK || r.Generation == 0 {
		t.Errorf("withdrawing a granted claim must return the grant: %+v", r.Answer)
	}
}

// The lock of a failed holder is delayed until the master ends the delay; a
// closed session leaves none (Chubby §2.4).
func TestLockDelay(t *testing.T) {
	for _, why := range []api.EndReason{api.ByExpiry, api.ByOperator, api.ByClose} {
		c := newCell(t)
		a, b := c.session("a"), c.session("b")
		lock, ha := c.file(a, "/lock")
		_, hb := c.file(b, "/lock")
		c.acquire(lock, c.claim(a, ha))
		claim := c.claim(b, hb)
		end := raftfsm.Command{EndSessions: &raftfsm.EndSessions{
			Ends: []raftfsm.End{{Session: a, Reason: why}}, Successions: []raftfsm.Succession{{Lock: lock, Claims: []raftfsm.Claim{claim}}},
		}}
		r := c.apply(end)
		if why == api.ByClose {
			if len(r.Delayed) != 0 || len(r.Claims) != 1 || r.Claims[0].Answer.Code() != api.OK {
				t.Errorf("%v: %+v", why, r)
			}
			continue
		}
		if !slices.Equal(r.Delayed, []api.Name{"/lock"}) || len(r.Claims) != 0 {
			t.Fatalf("%v: %+v", why, r)
		}
		if r := c.acquire(lock, claim)[0]; !r.Pending || r.Answer.Code() != api.LockDelayed {
			t.Errorf("%v: a claim on a delayed lock: %+v", why, r)
		}
		d, _ := c.state.Tree.Delay("/lock")
		if r := c.apply(raftfsm.Command{EndDelay: &raftfsm.EndDelay{Name: "/lock", ID: d.ID + 1}}); len(r.Free) > 0 {
			t.Errorf("%v: the end of another delay ended this one", why)
		}
		over := raftfsm.Command{EndDelay: &raftfsm.EndDelay{Name: "/lock", ID: d.ID, Successions: []raftfsm.Succession{{Lock: lock, Claims: []raftfsm.Claim{claim}}}}}
		if r := c.apply(over); len(r.Claims) != 1 || r.Claims[0].Answer.Code() != api.OK {
			t.Errorf("%v: the delay is over: %+v", why, r)
		}
	}
}

// Locks are not recursive, and a claim that cannot succeed by waiting is
// answered at once.
func TestNotRecursive(t *testing.T) {
	c := newCell(t)
	id := c.session("a")
	lock, h := c.file(id, "/lock")
	c.acquire(lock, c.claim(id, h))
	if r := c.acquire(lock, c.claim(id, h))[0]; r.Pending || r.Answer.Code() != api.LockHeld {
		t.Errorf("a second claim by the holder: %+v", r)
	}
	try := c.claim(c.session("b"), 1)
	try.Try = true
	if r := c.acquire(lock, try)[0]; r.Pending || r.Answer.Code() != api.LockHeld {
		t.Errorf("a try: %+v", r)
	}
	if r := c.acquire(namespace.Ref{Name: "/lock", Instance: lock.Instance + 1}, c.claim(id, h))[0]; r.Pending || r.Answer.Code() != api.HandleClosed {
		t.Errorf("a claim on another instance: %+v", r)
	}
}

// Ephemeral nodes are removed in a second step; until then their names are
// taken.
func TestEphemeralsDie(t *testing.T) {
	c := newCell(t)
	a, b := c.session("a"), c.session("b")
	open := raftfsm.Open{Mutation: c.mutation(a), Name: "/e", Create: api.MayCreate, Kind: api.File, Ephemeral: true}
	if r := c.apply(raftfsm.Command{Open: &open}); r.Code() != api.OK || !r.Created {
		t.Fatalf("%+v", r)
	}
	r := c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: a, Reason: api.ByExpiry}}}})
	if len(r.Dying) != 1 {
		t.Fatalf("%+v", r)
	}
	open.Mutation = c.mutation(b)
	if r := c.apply(raftfsm.Command{Open: &open}); r.Code() != api.Exists {
		t.Errorf("opening a dying node: %+v", r.Answer)
	}
	if r := c.apply(raftfsm.Command{Remove: &raftfsm.Remove{Nodes: r.Dying}}); len(r.Changes) != 1 || r.Changes[0].Kind != namespace.Removed {
		t.Errorf("%+v", r)
	}
	open.Mutation = c.mutation(b)
	if r := c.apply(raftfsm.Command{Open: &open}); r.Code() != api.OK || !r.Created {
		t.Errorf("the name is free again: %+v", r.Answer)
	}
}

// random returns a command of any kind, such as a cell that has applied others
// like it may get.
func random(r *rand.Rand, c *cell) raftfsm.Command {
	id := api.SessionID(r.IntN(40))
	name := []api.Name{"", "/a", "/b", "/a/x", "/a/y", "/e"}[r.IntN(6)]
	ref := namespace.Ref{Name: name, Instance: api.Generation(r.IntN(40))}
	if node, ok := c.state.Tree.Get(name); ok && r.IntN(8) > 0 {
		ref = node.Ref()
	}
	m := c.mutation(id)
	if r.IntN(10) == 0 && m.Number > 1 {
		m.Number-- // perhaps a retry, perhaps finished
		m.Outstanding = []api.RequestNumber{m.Number}
	}
	claim := raftfsm.Claim{
		Mutation: m, Handle: api.HandleID(r.IntN(4)), Mode: api.LockMode(1 + r.IntN(2)), Delay: time.Duration(r.IntN(2)) * time.Second, Try: r.IntN(2) == 0,
	}
	switch r.IntN(14) {
	case 0, 1:
		return raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: fmt.Append(nil, r.IntN(30)), Lease: time.Second}}
	case 2:
		return raftfsm.Command{RaiseLease: &raftfsm.RaiseLease{Session: id, Lease: time.Minute}}
	case 3:
		return raftfsm.Command{EndSessions: &raftfsm.EndSessions{
			Ends:        []raftfsm.End{{Session: id, Reason: api.EndReason(1 + r.IntN(3))}},
			Successions: []raftfsm.Succession{{Lock: ref, Claims: []raftfsm.Claim{claim}}},
		}}
	case 4, 5, 6:
		return raftfsm.Command{Open: &raftfsm.Open{
			Mutation: m, Name: name, Create: api.Create(r.IntN(3)), Kind: api.Kind(r.IntN(3)), Ephemeral: r.IntN(4) == 0, Contents: []byte{byte(r.Int())},
		}}
	case 7:
		return raftfsm.Command{Close: &raftfsm.Close{Mutation: m, Node: ref, Handle: api.HandleID(r.IntN(4)), Successions: []raftfsm.Succession{{Lock: ref, Claims: []raftfsm.Claim{claim}}}}}
	case 8:
		return raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: m, Node: ref, Contents: []byte{byte(r.Int())}}}
	case 9:
		return raftfsm.Command{Delete: &raftfsm.Delete{Mutation: m, Node: ref, Handle: api.HandleID(r.IntN(4))}}
	case 10:
		return raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: ref, Claims: []raftfsm.Claim{claim}}}}
	case 11:
		d, _ := c.state.Tree.Delay(name)
		return raftfsm.Command{EndDelay: &raftfsm.EndDelay{Name: name, ID: d.ID}}
	case 12:
		return raftfsm.Command{Remove: &raftfsm.Remove{Nodes: []namespace.Ref{ref}}}
	}
	generation := api.Generation(0)
	if node, ok := c.state.Tree.Get(name); ok {
		generation = node.Lock
	}
	return raftfsm.Command{Release: &raftfsm.Release{Mutation: m, Lock: ref, Handle: api.HandleID(r.IntN(4)), Generation: generation}}
}

// The same log gives the same state, whether a replica applies all of it or the
// part after a snapshot; and a snapshot taken before does not change.
func TestSameLogSameState(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := newCell(t)
		var log [][]byte
		write := func(e raftfsm.Entry) {
			data, err := e.Encode()
			if err != nil {
				t.Fatal(err)
			}
			log = append(log, data)
		}
		apply := func(s *raftfsm.State, from, to int) {
			for i := from; i < to; i++ {
				if _, err := s.ApplyData(uint64(i+1), 2, log[i], raftfsm.MaxLevel); err != nil {
					t.Fatal(err)
				}
			}
		}
		write(raftfsm.Entry{Epoch: 2, Wall: 1, Commands: []raftfsm.Command{{NewEpoch: &raftfsm.NewEpoch{
			Cell: "local", CellID: "00112233445566778899aabbccddeeff", Secret: []byte("secret"), Level: raftfsm.MaxLevel,
		}}}})
		for range 300 {
			command := random(r, c)
			c.apply(command)
			write(raftfsm.Entry{Epoch: 2, Wall: int64(len(log) + 1), Commands: []raftfsm.Command{command}})
		}
		half := len(log) / 2
		whole := raftfsm.NewState()
		apply(&whole, 0, half)
		snapshot := whole
		var before, after bytes.Buffer
		if _, err := snapshot.WriteTo(&before); err != nil {
			t.Fatal(err)
		}
		apply(&whole, half, len(log))
		if _, err := snapshot.WriteTo(&after); err != nil || !bytes.Equal(before.Bytes(), after.Bytes()) {
			t.Fatalf("seed %d: a snapshot has changed (%v)", seed, err)
		}
		restored, err := raftfsm.ReadState(&before, raftfsm.MaxLevel)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		apply(&restored, half, len(log))
		c.state.History = whole.History // Apply does not update it
		want := hash(t, c.state)
		for what, got := range map[string]string{"from the beginning": hash(t, whole), "from a snapshot": hash(t, restored)} {
			if got != want || whole.History == 0 {
				t.Errorf("seed %d: the log applied %s gives another state", seed, what)
			}
		}
	}
}

func hash(t testing.TB, s raftfsm.State) string {
	t.Helper()
	h, err := s.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return h
}
