package session

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// Check compares the indexes with the sessions.
func TestCheckFindsFaultsOfIndexes(t *testing.T) {
	for name, spoil := range map[string]func(*Table[int]){
		"a nonce of another":              func(table *Table[int]) { table.nonces.Set("a", 2) },
		"a nonce that is not indexed":     func(table *Table[int]) { table.nonces.Delete("a") },
		"a nonce of nobody":               func(table *Table[int]) { table.nonces.Set("c", 1) },
		"a count that is wrong":           func(table *Table[int]) { table.numbers.Set("alice", 2) },
		"a count of nobody":               func(table *Table[int]) { table.numbers.Set("carol", 1) },
		"a principal that is not counted": func(table *Table[int]) { table.numbers.Delete("alice") },
	} {
		table := NewTable[int]()
		table.Put(&Session[int]{ID: 1, Nonce: []byte("a"), Principal: "alice", Lease: time.Second})
		table.Put(&Session[int]{ID: 2, Nonce: []byte("b"), Principal: "bob", Lease: time.Second})
		if err := table.Check(); err != nil {
			t.Fatal(err)
		}
		spoil(&table)
		if err := table.Check(); !errors.Is(err, api.Corrupt) {
			t.Errorf("%s: %v, want Corrupt", name, err)
		}
	}
}

// Declared and Table agree on which numbers are finished, in whatever order
// declarations arrive.
func TestDeclaredAgreesWithTable(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		table, declared := NewTable[int](), Declared{}
		table.Put(&Session[int]{ID: 1, Lease: api.MinLease})
		var sent []Mutation
		var open []api.RequestNumber
		last := api.RequestNumber(0)
		for range 60 {
			if len(open) == 0 || random.IntN(3) > 0 {
				last++
				open = append(open, last)
			} else {
				i := random.IntN(len(open))
				open = append(open[:i:i], open[i+1:]...)
			}
			if len(open) > 0 {
				sent = append(sent, Mutation{Session: 1, Number: open[random.IntN(len(open))], HighestIssued: last, Outstanding: open, Hash: 1})
			}
		}
		for range 120 {
			m := sent[random.IntN(len(sent))]
			declared.Record(m)
			_, _, err := table.Begin(m)
			if refused := err != nil; refused != declared.Finished(m.Number) {
				t.Fatalf("seed %d: %+v: the table says %v, finished is %v", seed, m, err, declared.Finished(m.Number))
			}
			if s, _ := table.Get(1); len(s.Open) != len(declared.open) || s.HighestIssued != declared.highest {
				t.Fatalf("seed %d: the table has %v up to %d; %+v", seed, s.Open, s.HighestIssued, declared)
			}
		}
	}
}
