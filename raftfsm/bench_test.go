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

// benchCell is a state with sessions that each have a file open, without the
// checks of cell.
type benchCell struct {
	state raftfsm.State
	last  raftfsm.State
	index uint64
	ids   []api.SessionID
	locks []namespace.Ref
	next  []api.RequestNumber
	apply func(index, term uint64, e raftfsm.Entry) []raftfsm.Result
	read  bool // take a snapshot after each entry, as a master does for its readers
}

func newBenchCell(b *testing.B, sessions int) *benchCell {
	c := &benchCell{state: raftfsm.NewState(), next: make([]api.RequestNumber, sessions)}
	c.state.Edit()
	c.apply = c.state.Apply
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
	results := c.apply(c.index, 2, c.entry(commands...))
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
	data, err := entry.Encode()
	if err != nil {
		b.Fatal(err)
	}
	c.measure(b, len(entry.Commands), func() {
		if _, err := raftfsm.DecodeEntry(data); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkEncodeEntry writes an entry that acquires 64 locks.
func BenchmarkEncodeEntry(b *testing.B) {
	c := newBenchCell(b, 64)
	entry := c.acquireAll()
	c.measure(b, len(entry.Commands), func() {
		if _, err := entry.Encode(); err != nil {
			b.Fatal(err)
		}
	})
}
