package raftfsm_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/seeds"
	"github.com/chubbylock/chubby/raftfsm"
)

// populated returns a State after that many random commands, with its model.
func populated(tb testing.TB, seed uint64, commands int) *pair {
	tb.Helper()
	p := newPair()
	noErr(tb, p.run(randomSteps(seed, 0, commands)))
	return p
}

// Every entry that can be decoded is applied without a panic, leaves a sound
// state, the same on every replica, and is encoded as it was decoded.
func FuzzApply(f *testing.F) {
	seeds.Add(f)
	p := populated(f, 1, 1500)
	for _, data := range p.log[len(p.log)-200:] {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		entry, err := raftfsm.DecodeEntry(data)
		if err != nil {
			stopIf(t, !errors.Is(err, api.Corrupt), "%v is not Corrupt", err)
			return
		}
		entry.Epoch = api.Epoch(p.term)
		again, err := entry.Encode()
		noErr(t, err)
		other, err := raftfsm.DecodeEntry(again)
		noErr(t, err, "what was written cannot be read")
		state, replica := p.state, p.replica
		results := state.Apply(p.index+1, p.term, entry)
		stopIf(t, len(results) != len(entry.Commands), "%d results of %d commands", len(results), len(entry.Commands))
		noErr(t, state.Check())
		replica.Apply(p.index+1, p.term, other)
		stopIf(t, hash(t, state) != hash(t, replica), "two replicas differ")
		var snapshot bytes.Buffer
		must(state.WriteTo(&snapshot))(t)
		read, err := raftfsm.ReadState(&snapshot, math.MaxInt)
		noErr(t, err, "the snapshot cannot be read")
		if hash(t, read) != hash(t, state) { // replicas are stopped because of their hashes
			t.Fatal("a replica that was sent a snapshot differs from those that applied the log")
		}
	})
}

// FuzzModel looks for commands whose results differ from the model's. An input
// is a choice of commands, as in TestMillion.
func FuzzModel(f *testing.F) {
	seeds.Add(f)
	for seed := range uint64(4) {
		var data []byte
		for _, s := range randomSteps(seed, 1, 12) {
			data = append(data, s[:]...)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var steps []step
		for ; len(data) > 0 && len(steps) < 200; data = data[min(len(data), len(step{})):] {
			var s step
			copy(s[:], data)
			steps = append(steps, s)
		}
		if err := runSteps(steps); err != nil {
			t.Fatalf("%v%s", err, trace(steps))
		}
	})
}

// Every snapshot with a correct sum that can be read is sound: it is written as
// it was read, and entries can be applied to it.
func FuzzRestore(f *testing.F) {
	seeds.Add(f)
	for seed := range uint64(3) {
		p := populated(f, seed, 30+200*int(seed))
		var b bytes.Buffer
		must(p.state.WriteTo(&b))(f)
		f.Add(b.Bytes()[:b.Len()-sha256.Size])
	}
	log := populated(f, 4, 100).log
	f.Fuzz(func(t *testing.T, data []byte) {
		sum := sha256.Sum256(data)
		state, err := raftfsm.ReadState(bytes.NewReader(slices.Concat(data, sum[:])), math.MaxInt)
		if err != nil {
			stopIf(t, !errors.Is(err, api.Corrupt), "%v is not Corrupt", err)
			return
		}
		var b bytes.Buffer
		must(state.WriteTo(&b))(t)
		again, err := raftfsm.ReadState(&b, math.MaxInt)
		stopIf(t, err != nil || hash(t, again) != hash(t, state), "a snapshot reads back as a different one (%v)", err)
		for i, data := range log {
			entry := must(raftfsm.DecodeEntry(data))(t)
			entry.Epoch = state.Epoch
			state.Apply(state.Applied+uint64(i), uint64(state.Epoch), entry)
		}
		noErr(t, state.Check())
	})
}

// Every snapshot that can be read is whole, and is written as it was read.
func FuzzReadState(f *testing.F) {
	seeds.Add(f)
	for seed := range uint64(4) {
		var b bytes.Buffer
		must(populated(f, seed, 50*int(seed)).state.WriteTo(&b))(f)
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		state, err := raftfsm.ReadState(bytes.NewReader(data), math.MaxInt)
		if err != nil {
			stopIf(t, !errors.Is(err, api.Corrupt), "%v is not Corrupt", err)
			return
		}
		var b bytes.Buffer
		if _, err := state.WriteTo(&b); err != nil || !bytes.Equal(b.Bytes(), data) {
			t.Fatalf("a snapshot reads back as a different one (%v)", err)
		}
	})
}

// Every damaged byte of a snapshot is noticed.
func TestDamagedSnapshots(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var b bytes.Buffer
	must(populated(t, 5, 100).state.WriteTo(&b))(t)
	whole := b.Bytes()
	must(raftfsm.ReadState(bytes.NewReader(whole), math.MaxInt))(t)
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1 << r.IntN(8)
		if _, err := raftfsm.ReadState(bytes.NewReader(damaged), math.MaxInt); !errors.Is(err, api.Corrupt) {
			t.Fatalf("byte %d of %d damaged: %v", i, len(whole), err)
		}
		if _, err := raftfsm.ReadState(bytes.NewReader(whole[:i]), math.MaxInt); !errors.Is(err, api.Corrupt) {
			t.Fatalf("cut off after %d of %d bytes: %v", i, len(whole), err)
		}
	}
}
