package raftfsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// The list at MaxLevel says of each level what it brought: so nobody raises the level for two
// things that are released apart, and an operator can be told what an upgrade is for.
func TestLevelsAreListed(t *testing.T) {
	source := must(os.ReadFile("level.go"))(t)
	for level := 1; level <= raftfsm.MaxLevel; level++ {
		if line := regexp.MustCompile(fmt.Sprintf(`(?m)^//\t%d  \w`, level)); !line.Match(source) {
			t.Errorf("the list at MaxLevel, in level.go, has no line for level %d: say what it brings", level)
		}
	}
}

// A client that may change the ACL of the root can raise the level, never lower it. The level
// survives a snapshot, which a replica that does not know it refuses.
func TestRaiseLevel(t *testing.T) {
	const next = raftfsm.MaxLevel + 1
	c := newCell(t)
	a := c.session("a")
	raise := func(by api.SessionID, to int) raftfsm.Result {
		return c.apply(raftfsm.Command{RaiseLevel: &raftfsm.RaiseLevel{Mutation: c.mutation(by), To: to}})
	}
	c.want(raise(a, raftfsm.MaxLevel), api.InvalidArgument)
	c.want(raise(a, 0), api.InvalidArgument)
	c.want(raise(a, next), api.OK)
	c.want(raise(a, next), api.InvalidArgument)
	c.elect()
	equal(t, c.state.Level, next, "level %d after it was raised and a master was elected")
	closed := c.session("b")
	root, _ := c.state.Tree.Get("")
	c.file(a, "/acl/nobody")
	c.want(c.apply(raftfsm.Command{SetACL: &raftfsm.SetACL{Mutation: c.mutation(a), Node: root.Ref(), ACL: api.ACL{Change: "nobody"}}}), api.OK)
	c.want(raise(closed, next+1), api.PermissionDenied)

	var snapshot bytes.Buffer
	must(c.state.WriteTo(&snapshot))(t)
	whole := snapshot.Bytes()
	if again, err := raftfsm.ReadState(bytes.NewReader(whole), next); err != nil || again.Level != next {
		t.Errorf("a snapshot of level %d is read as one of %d: %v", next, again.Level, err)
	}
	if _, err := raftfsm.ReadState(bytes.NewReader(whole), raftfsm.MaxLevel); !errors.Is(err, raftfsm.ErrNewer) {
		t.Errorf("an older replica loads its snapshot: %v", err)
	}
}

// An older replica stops at the entry that raises the level above the highest that it
// knows. It does not stop at one that is refused.
func TestOlderReplicaStopsAtTheLevel(t *testing.T) {
	c := newCell(t)
	a := c.session("a")
	raise := raftfsm.Command{RaiseLevel: &raftfsm.RaiseLevel{Mutation: c.mutation(a), To: raftfsm.MaxLevel + 1}}
	for _, one := range []struct {
		epoch   uint64
		refused bool
	}{{c.term - 1, true}, {c.term, false}} {
		data, err := raftfsm.Entry{Epoch: api.Epoch(one.epoch), Commands: []raftfsm.Command{raise}}.Encode()
		noErr(t, err)
		old := c.state
		results, err := old.ApplyData(c.index+1, c.term, data, raftfsm.MaxLevel)
		switch {
		case one.refused && (err != nil || results[0].Code() != api.StaleEpoch || old.Applied != c.index+1):
			t.Errorf("refused: %v, %v", results, err)
		case !one.refused && (!errors.Is(err, raftfsm.ErrNewer) || old.Applied != c.index || old.Level != raftfsm.MaxLevel):
			t.Errorf("raised: %v; entry %d was applied, and the level is %d", err, old.Applied, old.Level)
		}
	}
}

// What was granted below the level of proofs is known by its generation, also after a snapshot; a cell that begins with proofs has no such grant.
func TestProofsFromLevelThree(t *testing.T) {
	equal(t, newCell(t).state.Unproved, 0, "a new cell has granted up to %d without proofs")
	c := &cell{t: t, state: raftfsm.NewState(), term: 1, next: map[api.SessionID]api.RequestNumber{}}
	c.want(c.apply(raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Secret: []byte("secret"), Level: 1}}), api.OK)
	a := c.session("a")
	raise := func(to int) {
		c.want(c.apply(raftfsm.Command{RaiseLevel: &raftfsm.RaiseLevel{Mutation: c.mutation(a), To: to}}), api.OK)
	}
	raise(2)
	node, _ := c.file(a, "/lock")
	failIf(t, c.state.Unproved != 0, "there are no proofs yet")
	raise(3)
	if was := c.state.Unproved; was < node.Instance || uint64(was) != c.state.Counter {
		t.Errorf("%d, and the counter is %d", was, c.state.Counter)
	}
	was := c.state.Unproved
	c.file(a, "/other")
	raise(4)
	var snapshot bytes.Buffer
	must(c.state.WriteTo(&snapshot))(t)
	read, err := raftfsm.ReadState(&snapshot, 4)
	failIf(t, err != nil || read.Unproved != was, "after a snapshot it is %d, and was %d: %v", read.Unproved, was, err)
}

// Apply refuses by these limits, or cuts by them what it keeps. Replicas of the last release have
// those below: with others, the replicas of a cell that is being upgraded would differ. A limit
// changes with a feature level, so that Apply uses the old one below it.
func TestLimitsAreThoseOfTheRelease(t *testing.T) {
	for name, limit := range map[string]struct{ is, released int64 }{
		"api.MaxContents":    {api.MaxContents, 256 << 10},
		"api.MaxPath":        {api.MaxPath, 1024},
		"api.MaxComponent":   {api.MaxComponent, 255},
		"api.MaxDepth":       {api.MaxDepth, 32},
		"api.MaxACLName":     {api.MaxACLName, 255},
		"api.MaxReason":      {api.MaxReason, 256},
		"api.MaxOutstanding": {api.MaxOutstanding, 256},
		"api.MaxGeneration":  {api.MaxGeneration, 1<<53 - 1},
		"api.MinLease":       {int64(api.MinLease), int64(time.Second)},
		"api.MaxLease":       {int64(api.MaxLease), int64(time.Minute)},
		"api.MaxLockDelay":   {int64(api.MaxLockDelay), int64(time.Minute)},
		"api.MaxHoldings":    {api.MaxHoldings, 16},
		"raftfsm.maxPast":    {raftfsm.MaxPast, 50_000},
		"refusal.MaxHolders": {refusal.MaxHolders, 100},
	} {
		if limit.is != limit.released {
			t.Errorf("%s is %d, and in the last release %d: let Apply use the new value from a feature level on (see the documentation of the package)", name, limit.is, limit.released)
		}
	}
	released := api.Quota{Nodes: 500_000, Bytes: 1 << 30, Sessions: 200_000, Handles: 1_000_000, Waiters: 200_000}
	if is := api.DefaultQuota(); is != released {
		t.Errorf("the default quota is %+v, and in the last release %+v: let Apply use the new one from a feature level on (see the documentation of the package)", is, released)
	}
}

// Entries and snapshots of a newer version, and those from before the first release, are
// distinguished from damaged ones.
func TestFormatsOfOtherVersions(t *testing.T) {
	c := newCell(t)
	entry := must(raftfsm.Entry{Epoch: 1, Wall: 1}.Encode())(t)
	var b bytes.Buffer
	must(c.state.WriteTo(&b))(t)
	rest, ok := strings.CutPrefix(b.String(), "chubby snapshot 2\n")
	if !ok || entry[0] != 1 {
		t.Fatalf("an entry begins with %d, a snapshot with %.20q: formats of released versions must be readable", entry[0], b.String())
	}
	readEntry := func(data string) error { _, err := raftfsm.DecodeEntry([]byte(data)); return err }
	readState := func(data string) error {
		_, err := raftfsm.ReadState(strings.NewReader(data), raftfsm.MaxLevel)
		return err
	}
	for name, one := range map[string]struct{ got, want error }{
		"an entry":                   {readEntry(string(entry)), nil},
		"a newer entry":              {readEntry("\x02" + string(entry[1:])), raftfsm.ErrNewer},
		"an unreleased entry":        {readEntry(string(entry[1:])), raftfsm.ErrUnreleased},
		"an empty entry":             {readEntry(""), api.Corrupt},
		"an entry of zeros":          {readEntry("\x00\x00"), api.Corrupt},
		"an entry without commands":  {readEntry("\x01"), api.Corrupt},
		"a snapshot":                 {readState("chubby snapshot 2\n" + rest), nil},
		"a newer snapshot":           {readState("chubby snapshot 3\n" + rest), raftfsm.ErrNewer},
		"a much newer snapshot":      {readState("chubby snapshot 17\n" + rest), raftfsm.ErrNewer},
		"an unreleased snapshot":     {readState("chubby snapshot 1\n" + rest), raftfsm.ErrUnreleased},
		"a snapshot of no format":    {readState("chubby snapshot 0\n" + rest), api.Corrupt},
		"a snapshot of words":        {readState("chubby snapshot x\n" + rest), api.Corrupt},
		"a file of something else":   {readState("something else altogether"), api.Corrupt},
		"a snapshot that is cut off": {readState("chubby snap"), api.Corrupt},
	} {
		if one.want == nil && one.got != nil || one.want != nil && !errors.Is(one.got, api.Corrupt) {
			t.Errorf("%s: %v, want %v", name, one.got, one.want)
		}
		for _, which := range []error{raftfsm.ErrNewer, raftfsm.ErrUnreleased} {
			if errors.Is(one.got, which) != errors.Is(one.want, which) {
				t.Errorf("%s: %v, want %v", name, one.got, one.want)
			}
		}
	}
}

// A cell without a list of operators has everybody change its lists. Making that list, in whatever way, closes them in the same entry: else
// everybody could write it. Names that somebody chose stay, and below level 3 nothing happens.
func TestMakingOperatorsClosesTheLists(t *testing.T) {
	put := func(contents string) raftfsm.Open {
		return raftfsm.Open{Name: "/acl/operators", Create: api.MayCreate, Kind: api.File, Contents: []byte(contents)}
	}
	ways := map[string]func(c *cell, by api.SessionID){
		"created with its contents": func(c *cell, by api.SessionID) {
			o := put("@ops\n")
			o.Mutation = c.mutation(by)
			if r := c.apply(raftfsm.Command{Open: &o}); c.state.Level >= 3 && r.Stat.ACL.Write != "operators" {
				t.Errorf("its author is told the names %+v", r.Stat.ACL)
			}
		},
		"created empty, and written": func(c *cell, by api.SessionID) {
			ref, _ := c.file(by, "/acl/operators")
			if dir, _ := c.state.Tree.Get("/acl"); dir.ACL.Write != "everyone" {
				t.Error("an empty list has closed the lists: nobody may write them any more")
			}
			r := c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(by), Node: ref, Contents: []byte("@ops\n")}})
			if c.state.Level >= 3 && (len(r.Changes) < 5 || r.Stat.ACL.Change != "operators") {
				t.Errorf("changes %v, and its author is told the names %+v", r.Changes, r.Stat.ACL)
			}
		},
		"in a transaction": func(c *cell, by api.SessionID) {
			if c.state.Level < 3 {
				return
			}
			c.want(c.apply(raftfsm.Command{Txn: &raftfsm.Txn{Mutation: c.mutation(by), Operations: []raftfsm.Operation{
				{Name: "/acl/operators", Create: api.MayCreate, Contents: []byte("@ops\n")},
			}}}), api.OK)
		},
	}
	for how, list := range ways {
		for _, level := range []int{2, 3} {
			c := newCell(t)
			c.state.Level = level
			alice := c.session("alice")
			c.want(c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(alice), Name: "/acl/ops", Create: api.MayCreate, Kind: api.File, Contents: []byte("alice\n")}}), api.OK)
			c.want(c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(alice), Name: "/acl/chosen", Create: api.MayCreate, Kind: api.File, ACL: api.ACL{Write: "ops"}}}), api.OK)
			list(c, alice)
			may := func(principal string, name api.Name, right namespace.Rights) bool {
				n, there := c.state.Tree.Get(name)
				return there && c.state.Tree.Permit(n, principal, right) == nil
			}
			for _, name := range []api.Name{"/acl", "/acl/everyone", "/acl/ops", "/acl/operators"} {
				if level == 3 && (may("bob", name, namespace.ToWrite) || may("bob", name, namespace.ToChange) || !may("bob", name, namespace.ToRead) || !may("alice", name, namespace.ToWrite|namespace.ToChange)) {
					t.Errorf("%s, at level %d: %q is open to others, or closed to operators", how, level, name)
				}
				if level == 2 && name != "/acl/operators" && !may("bob", name, namespace.ToWrite) {
					t.Errorf("%s, at level %d: %q is closed", how, level, name)
				}
			}
			if may("bob", "", namespace.ToChange) != (level < 3) || !may("bob", "", namespace.ToWrite) {
				t.Errorf("%s, at level %d: the root is open to others, or nobody else may make directories", how, level)
			}
			if chosen, _ := c.state.Tree.Get("/acl/chosen"); chosen.ACL.Write != "ops" {
				t.Errorf("%s, at level %d: a name that was chosen is %q now", how, level, chosen.ACL.Write)
			}
		}
	}
}
