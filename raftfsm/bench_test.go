package raftfsm_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// benchCell is a state with sessions that each have a file open, without the checks of cell.
type benchCell struct {
	state raftfsm.State
	last  raftfsm.State
	index uint64
	ids   []api.SessionID
	locks []namespace.Ref
	next  []api.RequestNumber
	read  bool // take a snapshot after each entry, as a master does for its readers
}

func newBenchCell(b *testing.B, sessions int) *benchCell {
	c := &benchCell{state: raftfsm.NewState(), next: make([]api.RequestNumber, sessions)}
	c.state.Edit()
	c.do(b, raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Level: raftfsm.MaxLevel}})
	for i := range sessions {
		principal := fmt.Sprintf("p%d", i)
		create := &raftfsm.CreateSession{Nonce: []byte(principal), Principal: principal, Lease: api.DefaultLease}
		c.ids = append(c.ids, c.do(b, raftfsm.Command{CreateSession: create})[0].Session)
		r := c.do(b, raftfsm.Command{Open: &raftfsm.Open{
			Mutation: c.mutation(i), Name: api.Name(fmt.Sprintf("/lock-%05d", i)), Create: api.MayCreate, Kind: api.File,
		}})
		c.locks = append(c.locks, namespace.Ref{Name: api.Name(fmt.Sprintf("/lock-%05d", i)), Instance: r[0].Stat.Instance})
	}
	return c
}

func (c *benchCell) mutation(i int) session.Mutation {
	c.next[i]++
	n := c.next[i]
	return session.Mutation{Session: c.ids[i], Number: n, HighestIssued: n, Outstanding: []api.RequestNumber{n}, Hash: uint64(n)}
}

func (c *benchCell) entry(commands ...raftfsm.Command) raftfsm.Entry {
	return raftfsm.Entry{Epoch: 2, Wall: 1, Commands: commands}
}

func (c *benchCell) do(b *testing.B, commands ...raftfsm.Command) []raftfsm.Result {
	c.index++
	results := c.state.Apply(c.index, 2, c.entry(commands...))
	for _, r := range results {
		if r.Code() != api.OK {
			b.Fatal(r.Err())
		}
	}
	if c.read {
		c.last = c.state.Snapshot()
	}
	return results
}

// BenchmarkLockUnlock applies an entry that acquires the locks of several sessions and one that
// releases them. Its figures are of one such pair of entries, and of a command. A master's state is
// read after each entry; a follower's is not.
func BenchmarkLockUnlock(b *testing.B) {
	for _, size := range []struct{ sessions, commands int }{{1, 1}, {64, 64}, {10_000, 64}} {
		for _, role := range []string{"master", "follower"} {
			b.Run(fmt.Sprintf("%s,sessions=%d,commands=%d", role, size.sessions, size.commands), func(b *testing.B) {
				c := newBenchCell(b, size.sessions)
				c.read = role == "master"
				first := 0
				c.measure(b, 2*size.commands, func() {
					c.lockUnlock(b, first, size.commands)
					first = (first + size.commands) % size.sessions
				})
			})
		}
	}
}

// lockUnlock applies an entry that acquires some locks, and one that releases them.
func (c *benchCell) lockUnlock(b *testing.B, first, n int) {
	commands := make([]raftfsm.Command, n)
	for k := range commands {
		i := (first + k*157) % len(c.ids)
		claim := raftfsm.Claim{Mutation: c.mutation(i), Handle: 1, Mode: api.Exclusive}
		commands[k] = raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: c.locks[i], Claims: []raftfsm.Claim{claim}}}}
	}
	granted := c.do(b, commands...)
	for k := range commands {
		i := (first + k*157) % len(c.ids)
		generation := granted[k].Claims[0].Answer.Generation
		commands[k] = raftfsm.Command{Release: &raftfsm.Release{Mutation: c.mutation(i), Lock: c.locks[i], Handle: 1, Generation: generation}}
	}
	c.do(b, commands...)
}

// BenchmarkFullHistory is as BenchmarkLockUnlock in a cell that has no room for another holding, with those of 10,000 principals. "first-ms" is
// how long the entry took that had to count what each of them has.
func BenchmarkFullHistory(b *testing.B) {
	const sessions, commands = 10_000, 64
	c := newBenchCell(b, sessions)
	c.read = true
	first := 0
	next := func() {
		c.lockUnlock(b, first, commands)
		first = (first + commands) % sessions
	}
	for range raftfsm.MaxPast / commands {
		next()
	}
	begun := time.Now()
	next()
	counting := time.Since(begun)
	c.measure(b, 2*commands, next)
	b.ReportMetric(counting.Seconds()*1000, "first-ms")
}

// measure reports the cost of a command. Some of the allocations are those of making the commands.
func (c *benchCell) measure(b *testing.B, commands int, do func()) {
	b.ReportAllocs()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		do()
	}
	runtime.ReadMemStats(&after)
	n := float64(commands * b.N)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/command")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/command")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "B/command")
}

// acquireAll returns an entry that acquires every lock for its session.
func (c *benchCell) acquireAll() raftfsm.Entry {
	var commands []raftfsm.Command
	for i, lock := range c.locks {
		claim := raftfsm.Claim{Mutation: c.mutation(i), Handle: 1, Mode: api.Exclusive}
		commands = append(commands, raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: lock, Claims: []raftfsm.Claim{claim}}}})
	}
	return c.entry(commands...)
}

// BenchmarkDecodeEntry reads an entry that acquires 64 locks.
func BenchmarkDecodeEntry(b *testing.B) {
	c := newBenchCell(b, 64)
	entry := c.acquireAll()
	data := must(entry.Encode())(b)
	c.measure(b, len(entry.Commands), func() {
		must(raftfsm.DecodeEntry(data))(b)
	})
}

// BenchmarkEncodeEntry writes an entry that acquires 64 locks.
func BenchmarkEncodeEntry(b *testing.B) {
	c := newBenchCell(b, 64)
	entry := c.acquireAll()
	c.measure(b, len(entry.Commands), func() {
		must(entry.Encode())(b)
	})
}

// largeState returns a state with so many files, in directories of 1,000, and a session.
func largeState(tb testing.TB, files int) (*raftfsm.State, api.SessionID) {
	s := raftfsm.NewState()
	s.Edit()
	r := s.Apply(1, 1, raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{
		{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Level: raftfsm.MaxLevel}},
		{CreateSession: &raftfsm.CreateSession{Nonce: []byte("a"), Lease: api.DefaultLease}},
	}})
	for i := range files {
		dir := api.Name(fmt.Sprintf("/dir-%04d", i/1_000))
		if i%1_000 == 0 {
			s.Counter++
			must(s.Tree.Create(dir, namespace.Spec{Kind: api.Directory}, api.Generation(s.Counter)))(tb)
		}
		s.Counter++
		if _, err := s.Tree.Create(dir+api.Name(fmt.Sprintf("/file-%03d", i%1_000)), namespace.Spec{Kind: api.File}, api.Generation(s.Counter)); err != nil {
			tb.Fatal(err)
		}
	}
	return &s, r[1].Session
}

// writeOne applies an entry that writes a file.
func writeOne(tb testing.TB, s *raftfsm.State, by api.SessionID, n api.RequestNumber, name api.Name) {
	node, ok := s.Tree.Get(name)
	stopIf(tb, !ok, "there is no %s", name)
	m := session.Mutation{Session: by, Number: n, HighestIssued: n, Outstanding: []api.RequestNumber{n}}
	if r := s.Apply(uint64(n)+1, 1, raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{{SetContents: &raftfsm.SetContents{Mutation: m, Node: node.Ref(), Contents: []byte("x")}}}}); r[0].Code() != api.OK {
		tb.Fatal(r[0].Err())
	}
}

// A snapshot of a large state takes as little as one of a small state, and the entries after it
// copy little: some nodes of each map.
func TestSnapshotCopiesNothing(t *testing.T) {
	cost := func(files int) (snapshot, entry float64) {
		s, id := largeState(t, files)
		var kept raftfsm.State
		snapshot = testing.AllocsPerRun(10, func() { kept = s.Snapshot() })
		n := api.RequestNumber(0)
		both := testing.AllocsPerRun(10, func() {
			kept = s.Snapshot()
			n++
			writeOne(t, s, id, n, "/dir-0000/file-007")
		})
		if node, ok := kept.Tree.Get("/dir-0000/file-007"); !ok || string(node.Contents) != "x" {
			t.Errorf("the last snapshot has %+v", node)
		}
		return snapshot, both - snapshot
	}
	small, smallEntry := cost(1_000)
	large, largeEntry := cost(100_000)
	t.Logf("allocations: a snapshot %v, and an entry after it %v; of a state 100 times as large %v and %v", small, smallEntry, large, largeEntry)
	if large != small || large > 20 || largeEntry > smallEntry+20 {
		t.Errorf("a snapshot takes %v allocations, and of a state 100 times as large %v; an entry after it %v and %v", small, large, smallEntry, largeEntry)
	}
}

// BenchmarkWrite applies an entry that writes 256 bytes to each of 64 files.
func BenchmarkWrite(b *testing.B) {
	c := newBenchCell(b, 64)
	c.read = true
	contents := make([]byte, 256)
	commands := make([]raftfsm.Command, 64)
	c.measure(b, len(commands), func() {
		for i := range commands {
			commands[i] = raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(i), Node: c.locks[i], Contents: contents}}
		}
		c.do(b, commands...)
	})
}
