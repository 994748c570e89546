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
	failIf(t, c.session("a") == 0, "the epoch does not go on")
}

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

// The lock of a failed holder is delayed until the master ends the delay; a closed session leaves none (Chubby §2.4).
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
		stopIf(t, !slices.Equal(r.Delayed, []api.Name{"/lock"}) || len(r.Claims) != 0, "%v: %+v", why, r)
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

// Locks are not recursive, and a claim that cannot succeed by waiting is answered at once.
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

// Ephemeral nodes are removed in a second step; until then their names are taken.
func TestEphemeralsDie(t *testing.T) {
	c := newCell(t)
	a, b := c.session("a"), c.session("b")
	open := raftfsm.Open{Mutation: c.mutation(a), Name: "/e", Create: api.MayCreate, Kind: api.File, Ephemeral: true}
	if r := c.apply(raftfsm.Command{Open: &open}); r.Code() != api.OK || !r.Created {
		t.Fatalf("%+v", r)
	}
	r := c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: a, Reason: api.ByExpiry}}}})
	stopIf(t, len(r.Dying) != 1, "%+v", r)
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

// random returns a command of any kind, such as a cell that has applied others like it may get.
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
			data := must(e.Encode())(t)
			log = append(log, data)
		}
		apply := func(s *raftfsm.State, from, to int) {
			for i := from; i < to; i++ {
				must(s.ApplyData(uint64(i+1), 2, log[i], raftfsm.MaxLevel))(t)
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
		must(snapshot.WriteTo(&before))(t)
		apply(&whole, half, len(log))
		if _, err := snapshot.WriteTo(&after); err != nil || !bytes.Equal(before.Bytes(), after.Bytes()) {
			t.Fatalf("seed %d: a snapshot has changed (%v)", seed, err)
		}
		restored, err := raftfsm.ReadState(&before, raftfsm.MaxLevel)
		stopIf(t, err != nil, "seed %d: %v", seed, err)
		apply(&restored, half, len(log))
		c.state.History = whole.History // Apply does not update it
		want := hash(t, c.state)
		for what, got := range map[string]string{"from the beginning": hash(t, whole), "from a snapshot": hash(t, restored)} {
			failIf(t, got != want || whole.History == 0, "seed %d: the log applied %s gives another state", seed, what)
		}
	}
}

func hash(t testing.TB, s raftfsm.State) string {
	t.Helper()
	h := must(s.Hash())(t)
	return h
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
