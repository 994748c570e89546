package session

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// see checks that a table has one session of alice, under her nonce, with that lease.
func see(t *testing.T, name string, table Table[int], lease time.Duration) {
	t.Helper()
	if err := table.Check(); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	s, found := table.ByNonce([]byte("a"))
	if !found || s.Lease != lease {
		t.Errorf("%s: by its nonce: %v, %+v; want a lease of %v", name, found, s, lease)
	}
	if got := slices.Collect(table.Principals("")); !slices.Equal(got, []string{"alice"}) || table.Of("alice") != 1 || table.Of("bob") != 0 {
		t.Errorf("%s: sessions of %q", name, got)
	}
}

// A snapshot, and a copy made when nothing is changed in place, have their own records and indexes.
func TestSnapshotsStayAsTheyAre(t *testing.T) {
	table := NewTable[int]()
	table.Put(&Session[int]{ID: 1, Nonce: []byte("a"), Principal: "alice", Lease: time.Second})
	rested := table.Snapshot()
	if err := table.RaiseLease(1, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	copied := table // a table at rest may be copied, also after Snapshot
	table.Edit()
	if err := table.RaiseLease(1, 3*time.Second); err != nil {
		t.Fatal(err)
	}
	edited := table.Snapshot()
	table.Settle()
	settled := table
	table.Put(&Session[int]{ID: 2, Nonce: []byte("b"), Principal: "bob", Lease: time.Second})
	table.End(1)

	see(t, "a snapshot of a table at rest", rested, time.Second)
	see(t, "a copy", copied, 2*time.Second)
	see(t, "a snapshot of a table in Edit", edited, 3*time.Second)
	see(t, "a copy after Settle", settled, 3*time.Second)
	if got := slices.Collect(table.Principals("")); !slices.Equal(got, []string{"bob"}) {
		t.Errorf("in the end there are sessions of %q, want bob", got)
	}
	if err := table.Check(); err != nil {
		t.Error(err)
	}
}

// In a table at rest no record is changed in place, also when it was changed after a snapshot.
func TestChangesAtRestAreCopies(t *testing.T) {
	table := NewTable[int]()
	table.Put(&Session[int]{ID: 1, Lease: time.Second})
	table.Snapshot()
	for i := range 3 {
		before := table
		if err := table.RaiseLease(1, time.Duration(i+2)*time.Second); err != nil {
			t.Fatal(err)
		}
		if s, _ := before.Get(1); s.Lease != time.Duration(i+1)*time.Second {
			t.Errorf("the copy from before has a lease of %v", s.Lease)
		}
	}
}

// Principals begins behind a name, and its loop may end early.
func TestPrincipalsBehindAName(t *testing.T) {
	table := NewTable[int]()
	for i, principal := range []string{"a", "b", "c"} {
		table.Put(&Session[int]{ID: api.SessionID(i + 1), Principal: principal, Lease: time.Second})
	}
	if got := slices.Collect(table.Principals("a")); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("behind a: %q", got)
	}
	for principal := range table.Principals("") {
		if principal != "a" {
			t.Errorf("the loop goes on to %q", principal)
		}
		break
	}
}

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
