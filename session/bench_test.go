package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

const manySessions = 100_000

// BenchmarkMutate does Begin and Finish of one request after the other, always
// with that many outstanding, in a full table.
func BenchmarkMutate(b *testing.B) {
	ids := make([]api.SessionID, manySessions)
	for i := range ids {
		ids[i] = api.SessionID(i + 1)
	}
	for _, outstanding := range []int{1, 64} {
		b.Run(fmt.Sprintf("outstanding=%d", outstanding), func(b *testing.B) {
			table := newTable(b, ids...)
			m := session.Mutation{Session: 500, Hash: 1, Outstanding: make(numbers, outstanding)}
			b.ReportAllocs()
			for b.Loop() {
				m.HighestIssued++
				m.Number = m.HighestIssued
				if m.HighestIssued < api.RequestNumber(outstanding) {
					m.Outstanding = m.Outstanding[:m.HighestIssued]
				} else {
					m.Outstanding = m.Outstanding[:outstanding]
				}
				for i := range m.Outstanding {
					m.Outstanding[len(m.Outstanding)-1-i] = m.HighestIssued - api.RequestNumber(i)
				}
				if _, done, err := table.Begin(m); done || err != nil {
					b.Fatal(done, err)
				}
				table.Finish(m, "answer")
			}
		})
	}
}

func manyLeases() *session.Leases {
	l := session.NewLeases()
	for id := range api.SessionID(manySessions) {
		l.Start(id+1, time.Hour+time.Duration(id*7919%manySessions)*time.Microsecond, 0)
	}
	return l
}

func BenchmarkTick(b *testing.B) {
	b.Run("due=0", func(b *testing.B) {
		l, now := manyLeases(), session.Instant(0)
		for b.Loop() {
			now++
			l.Tick(now, 0, 1000)
		}
	})
	b.Run("after a gap", func(b *testing.B) {
		l, now := manyLeases(), session.Instant(0)
		for b.Loop() {
			now = now.Add(time.Second)
			l.Tick(now, time.Second, 1000)
		}
	})
}

func BenchmarkGrant(b *testing.B) {
	l := manyLeases()
	from := session.Instant(0)
	id := api.SessionID(0)
	for b.Loop() {
		from += 100
		id = (id + 7919) % manySessions
		l.Grant(id+1, time.Hour, from)
	}
}

func BenchmarkExtend(b *testing.B) {
	g := session.Grant{Epoch: 1, Number: 1, Lease: api.DefaultLease, Parked: 7 * time.Second}
	l := session.NewLocal(0, g)
	sent := session.Instant(0)
	for b.Loop() {
		sent++
		g.Number++
		l.Extend(sent, g)
	}
}
