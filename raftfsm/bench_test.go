package raftfsm_test

import (
	"fmt"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// benchCell is a state with sessions that each have a file open, without the
// checks of cell.
type benchCell struct {
	state raftfsm.State
	index uint64
	ids   []api.SessionID
	locks []namespace.Ref
	next  []api.RequestNumber
}

func newBenchCell(b *testing.B, sessions int) *benchCell {
	c := &benchCell{state: raftfsm.NewState(), next: make([]api.RequestNumber, sessions)}
	c.apply(b, raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Level: raftfsm.MaxLevel}})
	for i := range sessions {
		principal := fmt.Sprintf("p%d", i)
		create := &raftfsm.CreateSession{Nonce: []byte(principal), Principal: principal, Lease: api.DefaultLease}
		c.ids = append(c.ids, c.apply(b, raftfsm.Command{CreateSession: create})[0].Session)
		r := c.apply(b, raftfsm.Command{Open: &raftfsm.Open{
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

func (c *benchCell) apply(b *testing.B, commands ...raftfsm.Command) []raftfsm.Result {
	c.index++
	results := c.state.Apply(c.index, 2, c.entry(commands...))
	for _, r := range results {
		if r.Code() != api.OK {
			b.Fatal(r.Err())
		}
	}
	return results
}

// BenchmarkLockUnlock applies an entry that acquires the locks of several
// sessions and one that releases them. Its figures are of one such pair of entries.
func BenchmarkLockUnlock(b *testing.B) {
	for _, size := range []struct{ sessions, commands int }{{1, 1}, {64, 64}, {10_000, 64}} {
		b.Run(fmt.Sprintf("sessions=%d,commands=%d", size.sessions, size.commands), func(b *testing.B) {
			c := newBenchCell(b, size.sessions)
			acquire, release := make([]raftfsm.Command, size.commands), make([]raftfsm.Command, size.commands)
			b.ReportAllocs()
			for first := 0; b.Loop(); first = (first + size.commands) % size.sessions {
				for k := range size.commands {
					i := (first + k) % size.sessions
					claim := raftfsm.Claim{Mutation: c.mutation(i), Handle: 1, Mode: api.Exclusive}
					acquire[k] = raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: c.locks[i], Claims: []raftfsm.Claim{claim}}}}
				}
				granted := c.apply(b, acquire...)
				for k := range size.commands {
					i := (first + k) % size.sessions
					generation := granted[k].Claims[0].Answer.Generation
					release[k] = raftfsm.Command{Release: &raftfsm.Release{Mutation: c.mutation(i), Lock: c.locks[i], Handle: 1, Generation: generation}}
				}
				c.apply(b, release...)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*size.commands*b.N), "ns/command")
		})
	}
}

// BenchmarkWrite applies an entry that writes 256 bytes to each of 64 files.
func BenchmarkWrite(b *testing.B) {
	c := newBenchCell(b, 64)
	contents := make([]byte, 256)
	commands := make([]raftfsm.Command, 64)
	b.ReportAllocs()
	for b.Loop() {
		for i := range commands {
			commands[i] = raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(i), Node: c.locks[i], Contents: contents}}
		}
		c.apply(b, commands...)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(len(commands)*b.N), "ns/command")
}

// BenchmarkDecodeEntry reads an entry that acquires 64 locks.
func BenchmarkDecodeEntry(b *testing.B) {
	c := newBenchCell(b, 64)
	var commands []raftfsm.Command
	for i, lock := range c.locks {
		claim := raftfsm.Claim{Mutation: c.mutation(i), Handle: 1, Mode: api.Exclusive}
		commands = append(commands, raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: lock, Claims: []raftfsm.Claim{claim}}}})
	}
	data, err := c.entry(commands...).Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := raftfsm.DecodeEntry(data); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(len(commands)*b.N), "ns/command")
}
