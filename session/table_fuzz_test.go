package session_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/seeds"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// twinSession is what FuzzTable expects of a session.
type twinSession struct {
	nonce, principal string
	terminating      *refusal.Intervention
	lease            time.Duration
	done             map[api.RequestNumber]bool
}

// FuzzTable: after any operations, the table has the sessions, their nonces and
// their numbers by principal that plain maps have; a copy does not change; and
// no request of a terminating session is done (decision 10).
func FuzzTable(f *testing.F) {
	seeds.Add(f)
	f.Add([]byte{0, 1, 0, 0, 2, 5, 0, 3, 9, 1, 1, 0, 2, 2, 1, 4, 2, 7, 4, 1, 3})
	f.Add([]byte{0, 1, 7, 0, 1, 3, 3, 1, 1, 4, 1, 1, 2, 1, 8, 1, 1, 0, 0, 1, 2})
	f.Add([]byte{3, 9, 0, 0, 3, 0, 3, 3, 0, 3, 3, 1, 1, 3, 0, 1, 3, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		table, twin := session.NewTable[string](), map[api.SessionID]*twinSession{}
		for ; len(data) >= 3; data = data[3:] {
			copied, before := table, dump(table)
			operate(t, &table, twin, data[0], api.SessionID(1+data[1]%4), data[2])
			if after := dump(copied); !slices.EqualFunc(before, after, sameSession) {
				t.Fatalf("a copy has changed from %+v to %+v", before, after)
			}
			mustCheck(t, table)
			compareTables(t, table, twin)
		}
	})
}

func sameSession(a, b session.Session[string]) bool {
	return a.ID == b.ID && reflect.DeepEqual(a.Terminating, b.Terminating) && a.Lease == b.Lease && a.Principal == b.Principal && slices.Equal(a.Open, b.Open)
}

func operate(t *testing.T, table *session.Table[string], twin map[api.SessionID]*twinSession, what byte, id api.SessionID, with byte) {
	s := twin[id]
	want := api.OK
	if s == nil {
		want = api.SessionExpired
	}
	switch what % 5 {
	case 0: // a nonce of its own, or the empty one
		nonce := []byte{byte(id), with % 3}[:with%3]
		principal := []string{"", "ann", "bob"}[with%3]
		table.Put(&session.Session[string]{ID: id, Nonce: nonce, Principal: principal, Lease: time.Second})
		twin[id] = &twinSession{nonce: string(nonce), principal: principal, lease: time.Second, done: map[api.RequestNumber]bool{}}
	case 1:
		if ended := table.End(id); ended != (s != nil) {
			t.Fatalf("the end of %v: %v", id, ended)
		}
		delete(twin, id)
	case 2:
		by := refusal.Intervention{Principal: "op", Why: []string{"", "stuck", strings.Repeat("x", api.MaxReason+1)}[with%3]}
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
		request(t, table, s, id, api.RequestNumber(with))
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
	}
	if table.Len() != len(twin) {
		t.Fatalf("%d sessions, want %d", table.Len(), len(twin))
	}
}
