package raftfsm_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// Whatever is read as an entry is applied without a panic, leaves the state
// whole, and reads back as it was written.
func FuzzApply(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	c := newCell(f)
	for range 60 {
		command := random(r, c)
		c.apply(command)
		data, err := raftfsm.EncodeEntry(raftfsm.Entry{Epoch: 2, Commands: []raftfsm.Command{command}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		entry, err := raftfsm.DecodeEntry(data)
		if err != nil {
			if !errors.Is(err, api.Corrupt) {
				t.Fatalf("%v is not Corrupt", err)
			}
			return
		}
		again, err := raftfsm.EncodeEntry(entry)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := raftfsm.DecodeEntry(again); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		state := c.state
		entry.Epoch = 2
		results := state.Apply(c.index+1, 2, entry)
		if len(results) != len(entry.Commands) {
			t.Fatalf("%d results of %d commands", len(results), len(entry.Commands))
		}
		if err := state.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever is read as a snapshot is whole, and is written as it was read.
func FuzzReadState(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	c := newCell(f)
	for i := range 200 {
		c.apply(random(r, c))
		if i%50 == 0 {
			var b bytes.Buffer
			if _, err := c.state.WriteTo(&b); err != nil {
				f.Fatal(err)
			}
			f.Add(b.Bytes())
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		state, err := raftfsm.ReadState(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, api.Corrupt) {
				t.Fatalf("%v is not Corrupt", err)
			}
			return
		}
		var b bytes.Buffer
		if _, err := state.WriteTo(&b); err != nil || !bytes.Equal(b.Bytes(), data) {
			t.Fatalf("a snapshot reads back as another (%v)", err)
		}
	})
}

// Every damaged byte of a snapshot is noticed.
func TestDamagedSnapshots(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	c := newCell(t)
	for range 100 {
		c.apply(random(r, c))
	}
	var b bytes.Buffer
	if _, err := c.state.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	if _, err := raftfsm.ReadState(bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1 << r.IntN(8)
		if _, err := raftfsm.ReadState(bytes.NewReader(damaged)); !errors.Is(err, api.Corrupt) {
			t.Fatalf("byte %d of %d damaged: %v", i, len(whole), err)
		}
		if _, err := raftfsm.ReadState(bytes.NewReader(whole[:i])); !errors.Is(err, api.Corrupt) {
			t.Fatalf("cut off after %d of %d bytes: %v", i, len(whole), err)
		}
	}
}
