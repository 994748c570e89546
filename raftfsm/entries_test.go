package raftfsm_test

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/chubbylock/chubby/raftfsm"
)

// An entry of many commands does what its commands do one by one, and a result is still the same
// when the rest of the entry has been applied.
func TestEntriesOfManyCommands(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	p := newPair()
	if err := p.run(randomSteps(seed, 0, 2_000)); err != nil {
		t.Fatal(err)
	}
	together, alone := raftfsm.NewState(), raftfsm.NewState()
	r := rand.New(rand.NewPCG(seed, 1))
	for i := 0; i < len(p.log); {
		var entry raftfsm.Entry
		term := p.terms[i]
		for n := 1 + r.IntN(20); n > 0 && i < len(p.log) && p.terms[i] == term; n-- {
			one, err := raftfsm.DecodeEntry(p.log[i])
			if err != nil {
				t.Fatal(err)
			}
			if len(entry.Commands) > 0 && one.Epoch != entry.Epoch {
				break
			}
			entry.Epoch, entry.Wall, entry.Commands = one.Epoch, one.Wall, append(entry.Commands, one.Commands...)
			i++
		}
		results := together.Apply(uint64(i), term, entry)
		for k, c := range entry.Commands {
			want := alone.Apply(uint64(i), term, raftfsm.Entry{Epoch: entry.Epoch, Wall: entry.Wall, Commands: []raftfsm.Command{c}})[0]
			if !reflect.DeepEqual(results[k], want) {
				t.Fatalf("entry %d, command %d of %d: %s\n  together %s\n  alone    %s", i, k, len(entry.Commands), show(c), showResult(results[k]), showResult(want))
			}
		}
	}
	a, aerr := together.Hash()
	b, berr := alone.Hash()
	if a != b || aerr != nil || berr != nil {
		t.Errorf("the states differ: %v, %v", aerr, berr)
	}
}

// Neither the state nor a result has memory of the entry: Raft may use that again, and a node would
// keep the whole entry in memory.
func TestNothingKeepsTheMemoryOfAnEntry(t *testing.T) {
	p := populated(t, rand.Uint64(), 1_000)
	kept, replica := raftfsm.NewState(), raftfsm.NewState()
	for i, data := range p.log {
		want, err := kept.ApplyData(uint64(i+1), p.terms[i], data, maxTestLevel)
		if err != nil {
			t.Fatal(err)
		}
		used := bytes.Clone(data)
		got, err := replica.ApplyData(uint64(i+1), p.terms[i], used, maxTestLevel)
		if err != nil {
			t.Fatal(err)
		}
		for at := range used {
			used[at] = '?'
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("entry %d: its results changed with its memory\n  from %s\n  to   %s", i, showResult(want[0]), showResult(got[0]))
		}
	}
	if hash(t, replica) != hash(t, kept) {
		t.Error("the state changed with the memory of entries")
	}
}
