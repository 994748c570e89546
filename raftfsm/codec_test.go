package raftfsm_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/seeds"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// An entry of many commands does what its commands do one by one, and a result is still the same
// when the rest of the entry has been applied.
func TestEntriesOfManyCommands(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	p := newPair()
	noErr(t, p.run(randomSteps(seed, 0, 2_000)))
	together, alone := raftfsm.NewState(), raftfsm.NewState()
	r := rand.New(rand.NewPCG(seed, 1))
	for i := 0; i < len(p.log); {
		var entry raftfsm.Entry
		term := p.terms[i]
		for n := 1 + r.IntN(20); n > 0 && i < len(p.log) && p.terms[i] == term; n-- {
			one := must(raftfsm.DecodeEntry(p.log[i]))(t)
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
	failIf(t, a != b || aerr != nil || berr != nil, "the states differ: %v, %v", aerr, berr)
}

// Neither the state nor a result has memory of the entry: Raft may use that again, and a node would
// keep the whole entry in memory.
func TestNothingKeepsTheMemoryOfAnEntry(t *testing.T) {
	p := populated(t, rand.Uint64(), 1_000)
	kept, replica := raftfsm.NewState(), raftfsm.NewState()
	for i, data := range p.log {
		want := must(kept.ApplyData(uint64(i+1), p.terms[i], data, maxTestLevel))(t)
		used := bytes.Clone(data)
		got := must(replica.ApplyData(uint64(i+1), p.terms[i], used, maxTestLevel))(t)
		for at := range used {
			used[at] = '?'
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("entry %d: its results changed with its memory\n  from %s\n  to   %s", i, showResult(want[0]), showResult(got[0]))
		}
	}
	failIf(t, hash(t, replica) != hash(t, kept), "the state changed with the memory of entries")
}

// checkCodecs compares what is written and read with and without reflection.
func checkCodecs(t *testing.T, e raftfsm.Entry) {
	t.Helper()
	slow, err := raftfsm.EncodeSlow(e)
	noErr(t, err)
	slow = append([]byte{1}, slow...)
	fast, err := e.Encode()
	if err != nil || !bytes.Equal(fast, slow) {
		t.Fatalf("%+v is written as\n  %x (%v), and by reflection as\n  %x", e, fast, err, slow)
	}
	want, err := raftfsm.DecodeSlow(slow)
	if err != nil {
		return // text that is no UTF-8, for one
	}
	if got, err := raftfsm.DecodeEntry(slow); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("read as\n  %+v (%v), and by reflection as\n  %+v", got, err, want)
	}
	for _, c := range e.Commands {
		for _, s := range c.Successions() {
			for _, claim := range s.Claims {
				if data, err := raftfsm.EncodeSlow(claim); err != nil || raftfsm.Size(claim) != len(data) {
					t.Fatalf("the size of %+v is %d, not %d (%v)", claim, raftfsm.Size(claim), len(data), err)
				}
			}
		}
	}
}

// The commands that are written and read without reflection have the same form, and so have the
// entries in which they are.
func TestFastCodec(t *testing.T) {
	p := populated(t, rand.Uint64(), 2_000)
	for i, data := range p.log {
		e := must(raftfsm.DecodeSlow(data))(t)
		more := must(raftfsm.DecodeSlow(p.log[i*7%len(p.log)]))(t)
		e.Commands = append(e.Commands, more.Commands...)
		checkCodecs(t, e)
	}
	checkCodecs(t, raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{}})
	for _, n := range []uint64{0, 1, 23, 24, math.MaxUint8, math.MaxUint8 + 1, math.MaxUint16, math.MaxUint16 + 1, math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64, math.MaxUint64} {
		name := api.Name("/" + string(bytes.Repeat([]byte("x"), int(n%1_000))))
		generation := api.Generation(n)
		m := session.Mutation{Session: api.SessionID(n), Number: 1, HighestIssued: api.RequestNumber(n), Outstanding: []api.RequestNumber{api.RequestNumber(n), 7}, Hash: n}
		claims := []raftfsm.Claim{
			{Mutation: m, Handle: api.HandleID(n), Mode: api.LockMode(n), Delay: time.Duration(n), Reason: string(name), Try: n%2 == 0, Preconditions: []raftfsm.Precondition{{Lock: name, Mode: 1, Generation: generation}}, DeclaredOwner: string(name)},
			{Reason: "\xff", Preconditions: []raftfsm.Precondition{}},
		}[:1+n%2]
		lock := namespace.Ref{Name: name, Instance: generation}
		for _, c := range []raftfsm.Command{
			{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: lock, Claims: claims}}},
			{Acquire: &raftfsm.Acquire{}},
			{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Claims: []raftfsm.Claim{}}}},
			{Release: &raftfsm.Release{Mutation: m, Lock: lock, Handle: 3, Generation: generation, Successions: []raftfsm.Succession{{Lock: lock, Claims: claims}, {}}}},
			{Release: &raftfsm.Release{}},
			{SetContents: &raftfsm.SetContents{Mutation: m, Node: lock, Contents: []byte(name), IfContent: &generation, Preconditions: claims[0].Preconditions}},
			{SetContents: &raftfsm.SetContents{Contents: []byte{}}},
			{Close: &raftfsm.Close{Mutation: m, Node: lock}},
		} {
			checkCodecs(t, raftfsm.Entry{Epoch: api.Epoch(n), Wall: int64(n), Commands: []raftfsm.Command{c}})
			checkCodecs(t, raftfsm.Entry{Epoch: api.Epoch(n), Wall: 1, Commands: []raftfsm.Command{c, {}, c}})
		}
	}
}

// What is read without reflection is read as with it, whatever it is.
func FuzzFastDecode(f *testing.F) {
	p := populated(f, 1, 1500)
	for _, data := range p.log[len(p.log)-300:] {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		fast, ok := raftfsm.DecodeFast(data)
		if !ok {
			return
		}
		slow, err := raftfsm.DecodeSlow(data)
		if err != nil || !reflect.DeepEqual(fast, slow) {
			t.Fatalf("%x is read as\n  %+v, and by reflection as\n  %+v (%v)", data, fast, slow, err)
		}
	})
}

// Damaged entries are read as with reflection, or as little. TestFastCodec's entries are not all
// that a replica may find.
func TestFastDecodeOfDamage(t *testing.T) {
	p := populated(t, 1, 600)
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	read := 0
	for range 50_000 {
		data := bytes.Clone(p.log[r.IntN(len(p.log))])
		for range 1 + r.IntN(3) {
			data[1+r.IntN(len(data)-1)] ^= 1 << r.IntN(8)
		}
		fast, ok := raftfsm.DecodeFast(data)
		slow, err := raftfsm.DecodeSlow(data)
		if ok && (err != nil || !reflect.DeepEqual(fast, slow)) {
			t.Fatalf("%x is read as\n  %+v, and by reflection as\n  %+v (%v)", data, fast, slow, err)
		}
		if ok {
			read++
		}
	}
	failIf(t, read < 1_000, "only %d of the damaged entries could be read", read)
}

// A number that is too large for its type is damage.
func TestNumbersFitTheirTypes(t *testing.T) {
	claims := []raftfsm.Claim{{Mode: 200}}
	data, err := raftfsm.Entry{Commands: []raftfsm.Command{{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Claims: claims}}}}}.Encode()
	noErr(t, err)
	larger := bytes.Replace(data, []byte{3, 0x18, 200}, []byte{3, 0x19, 1, 200}, 1)
	if _, err := raftfsm.DecodeEntry(data); err != nil || bytes.Equal(data, larger) {
		t.Fatalf("%x: %v", data, err)
	}
	if e, err := raftfsm.DecodeEntry(larger); !errors.Is(err, api.Corrupt) {
		t.Errorf("a mode of 456 is read as %+v: %v", e, err)
	}
}

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
