package session

import (
	"math/rand/v2"
	"testing"

	"github.com/chubbylock/chubby/api"
)

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
