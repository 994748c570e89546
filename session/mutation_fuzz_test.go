package session_test

import (
	"encoding/binary"
	"reflect"
	"slices"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/seeds"
	"github.com/chubbylock/chubby/session"
)

// mutations reads arbitrary bytes as mutations: mostly small numbers, so that
// they collide, and all 64 bits for some.
func mutations(data []byte) []session.Mutation {
	var all []session.Mutation
	number := func() (n uint64) {
		if len(data) == 0 {
			return 0
		}
		first := data[0]
		data = data[1:]
		if first < 250 || len(data) < 8 {
			return uint64(first)
		}
		n, data = binary.LittleEndian.Uint64(data), data[8:]
		return n
	}
	for len(data) > 0 {
		m := session.Mutation{Session: api.SessionID(number() % 3), Number: api.RequestNumber(number()), HighestIssued: api.RequestNumber(number()), Hash: number() % 3}
		for range min(number(), uint64(len(data))) {
			m.Outstanding = append(m.Outstanding, api.RequestNumber(number()))
		}
		if m.Hash > 0 { // otherwise most would be refused
			m.Outstanding = append(m.Outstanding, m.Number)
			slices.Sort(m.Outstanding)
			m.Outstanding = slices.Compact(m.Outstanding)
		}
		all = append(all, m)
	}
	return all
}

// FuzzBegin: no sequence of mutations makes Begin panic, breaks an invariant,
// or changes anything when it is refused.
func FuzzBegin(f *testing.F) {
	seeds.Add(f)
	f.Add([]byte{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})                   // a retry
	f.Add([]byte{1, 8, 8, 1, 2, 7, 8, 1, 7, 7, 1, 1, 7, 2, 3, 3, 1, 0}) // overtaken
	f.Add([]byte{1, 0, 0, 0, 0, 1, 9, 3, 1, 2, 4, 3})                   // out of limits
	f.Add(slices.Concat([]byte{1, 1, 255}, []byte{255, 255, 255, 255, 255, 255, 255, 255}, []byte{1, 0}))
	f.Fuzz(func(t *testing.T, data []byte) {
		table := newTable(t, 1, 2)
		for _, m := range mutations(data) {
			before := dump(table)
			_, done, err := table.Begin(m)
			switch code := api.CodeOf(err); code {
			case api.OK:
				if !done {
					table.Finish(m, "answer")
				}
				if answer, again, err := table.Begin(m); err != nil || !again || answer != "answer" {
					t.Fatalf("%+v repeated at once: %q, %v, %v", m, answer, again, err)
				}
			case api.InvalidArgument, api.QuotaExceeded, api.SessionExpired:
				if after := dump(table); !reflect.DeepEqual(before, after) {
					t.Fatalf("%+v was refused (%v) and changed %+v to %+v", m, err, before, after)
				}
			default:
				t.Fatalf("%+v was refused with %v", m, err)
			}
			mustCheck(t, table)
		}
	})
}
