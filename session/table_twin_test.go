package session_test

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// twinSession is what a table should have of a session.
type twinSession struct {
	nonce, principal string
	terminating      *refusal.Intervention
	lease            time.Duration
	done             map[api.RequestNumber]bool
}

// After any operations, in place or not, the table has the sessions, their nonces and their numbers by principal that plain maps have;
// no copy and no snapshot changes; and no request of a terminating session is done (decision 10).
func TestTableAgreesWithPlainMaps(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		table, twin := session.NewTable[string](), map[api.SessionID]*twinSession{}
		var copies []session.Table[string]
		var shown [][]session.Session[string]
		editing := false
		for range 40 {
			copied := table // which is a snapshot unless changes are made in place
			if editing || random.IntN(2) == 0 {
				copied = table.Snapshot()
			}
			copies, shown = append(copies, copied), append(shown, dump(table))
			switch random.IntN(10) {
			case 0:
				table.Edit()
				editing = true
			case 1:
				table.Settle()
				editing = false
			}
			operate(t, &table, twin, random.IntN(5), api.SessionID(1+random.IntN(4)), random.IntN(64)-1)
			mustCheck(t, table)
			compareTables(t, table, twin)
		}
		for i, copied := range copies {
			if is := dump(copied); !slices.EqualFunc(shown[i], is, sameSession) {
				t.Fatalf("copy %d has changed from %+v to %+v", i, shown[i], is)
			}
			mustCheck(t, copied)
		}
	}
}

func sameSession(a, b session.Session[string]) bool {
	return a.ID == b.ID && reflect.DeepEqual(a.Terminating, b.Terminating) && a.Lease == b.Lease && a.Principal == b.Principal && slices.Equal(a.Open, b.Open)
}

func operate(t *testing.T, table *session.Table[string], twin map[api.SessionID]*twinSession, what int, id api.SessionID, with int) {
	s := twin[id]
	want := api.OK
	if s == nil {
		want = api.SessionExpired
	}
	some := (with + 1) % 3
	switch what {
	case 0: // a nonce of its own, or the empty one
		nonce := []byte{byte(id), byte(some)}[:some]
		principal := []string{"", "ann", "bob"}[some]
		table.Put(&session.Session[string]{ID: id, Nonce: nonce, Principal: principal, Lease: time.Second})
		twin[id] = &twinSession{nonce: string(nonce), principal: principal, lease: time.Second, done: map[api.RequestNumber]bool{}}
	case 1:
		if ended := table.End(id); ended != (s != nil) {
			t.Fatalf("the end of %v: %v", id, ended)
		}
		delete(twin, id)
	case 2:
		by := refusal.Intervention{Principal: "op", Why: []string{"stuck", strings.Repeat("x", api.MaxReason), strings.Repeat("x", api.MaxReason+1)}[some]}
		if s != nil && len(by.Why) > api.MaxReason {
			want = api.InvalidArgument
		} else if s != nil && s.terminating == nil {
			s.terminating = &by
		}
		if err := table.Terminate(id, by); api.CodeOf(err) != want {
			t.Fatalf("terminating %v: %v, want %v", id, err, want)
		}
	case 3:
		lease := time.Duration(with) * time.Second
		if lease > api.MaxLease {
			want = api.InvalidArgument
		} else if s != nil {
			s.lease = max(s.lease, lease)
		}
		if err := table.RaiseLease(id, lease); api.CodeOf(err) != want {
			t.Fatalf("raising %v to %v: %v, want %v", id, lease, err, want)
		}
	case 4:
		request(t, table, s, id, api.RequestNumber(with+1))
	}
}

func request(t *testing.T, table *session.Table[string], s *twinSession, id api.SessionID, n api.RequestNumber) {
	m := session.Mutation{Session: id, Number: n, HighestIssued: 255, Hash: 1}
	for i := range api.RequestNumber(255) {
		m.Outstanding = append(m.Outstanding, i+1)
	}
	_, done, err := table.Begin(m)
	switch code := api.CodeOf(err); {
	case n == 0:
		if code != api.InvalidArgument {
			t.Fatalf("request 0: %v", err)
		}
	case s == nil || s.terminating != nil:
		if code != api.SessionExpired {
			t.Fatalf("a request of %v, which is %+v: %v", id, s, err)
		}
	case code != api.OK || done != s.done[n]:
		t.Fatalf("request %d of %v: %v, %v; want %v", n, id, done, err, s.done[n])
	default:
		table.Finish(m, "answer")
		s.done[n] = true
	}
}

func compareTables(t *testing.T, table session.Table[string], twin map[api.SessionID]*twinSession) {
	of := map[string]int{}
	for _, id := range slices.Sorted(maps.Keys(twin)) {
		s := twin[id]
		of[s.principal]++
		got, ok := table.Get(id)
		if !ok || got.Principal != s.principal || !reflect.DeepEqual(got.Terminating, s.terminating) || got.Lease != s.lease {
			t.Fatalf("%v is %+v, want %+v", id, got, s)
		}
		if found, ok := table.ByNonce([]byte(s.nonce)); ok != (s.nonce != "") || ok && found.ID != id {
			t.Fatalf("the nonce of %v finds %+v, %v", id, found, ok)
		}
	}
	for _, principal := range []string{"", "ann", "bob"} {
		if table.Of(principal) != of[principal] {
			t.Fatalf("%q has %d sessions, want %d", principal, table.Of(principal), of[principal])
		}
		behind := slices.DeleteFunc(slices.Sorted(maps.Keys(of)), func(one string) bool { return one <= principal })
		if got := slices.Collect(table.Principals(principal)); !slices.Equal(got, behind) {
			t.Fatalf("behind %q: %q, want %q", principal, got, behind)
		}
		for first := range table.Principals(principal) {
			if first != behind[0] {
				t.Fatalf("the loop goes on to %q", first)
			}
			break
		}
	}
	var ids []api.SessionID
	for s := range table.All() {
		ids = append(ids, s.ID)
	}
	if want := slices.Sorted(maps.Keys(twin)); !slices.Equal(ids, want) {
		t.Fatalf("All gives %v, want %v", ids, want)
	}
	for id := range api.SessionID(6) {
		if _, known := table.Get(id); known != (twin[id] != nil) {
			t.Fatalf("the table has %v: %v", id, known)
		}
	}
	if table.Len() != len(twin) {
		t.Fatalf("%d sessions, want %d", table.Len(), len(twin))
	}
}
