package console

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// lockOf is a lock that some sessions hold, and for which others wait.
func lockOf(name string, holders, waiters []api.SessionID) client.LockInfo {
	l := client.LockInfo{Path: "/ls/local/" + name}
	for _, id := range holders {
		l.Holders = append(l.Holders, api.Holder{Session: id})
	}
	for i, id := range waiters {
		l.Waiters = append(l.Waiters, client.Waiter{Holder: api.Holder{Session: id}, Place: i + 1, Waiting: time.Duration(len(waiters)-i) * time.Second})
	}
	return l
}

func ringsOf(p *waitsPage) (rings [][]api.SessionID) {
	for _, ring := range p.Rings {
		var ids []api.SessionID
		for _, h := range ring {
			ids = append(ids, h.Session)
		}
		rings = append(rings, ids)
	}
	return rings
}

// A program that waits for a lock which it holds by another handle, as its threads may, waits for nobody else: that is no deadlock. Nor is what is
// left of requests whose clients are gone.
func TestNoRingOfOneSession(t *testing.T) {
	own := lockOf("a", []api.SessionID{1}, []api.SessionID{1})
	there, back := lockOf("a", []api.SessionID{1}, []api.SessionID{2}), lockOf("b", []api.SessionID{2}, []api.SessionID{1})
	absent := lockOf("b", []api.SessionID{2}, []api.SessionID{1})
	absent.Waiters[0].Absent = true
	for name, c := range map[string]struct {
		locks []client.LockInfo
		rings int
	}{
		"its own lock":             {[]client.LockInfo{own}, 0},
		"its own, besides another": {[]client.LockInfo{lockOf("a", []api.SessionID{1, 2}, []api.SessionID{1})}, 0},
		"two":                      {[]client.LockInfo{there, back}, 1},
		"two, one of them gone":    {[]client.LockInfo{there, absent}, 0},
		"both hold, and both wait": {[]client.LockInfo{lockOf("a", []api.SessionID{1, 2}, []api.SessionID{1, 2})}, 1},
	} {
		if p := graphOf(c.locks); len(p.Rings) != c.rings {
			t.Errorf("%s: the rings are %v, want %d", name, ringsOf(p), c.rings)
		}
	}
}

// However many wait for each other, the page is bounded, and is made at once: clients choose how many do.
func TestWaitsOfManyAreBounded(t *testing.T) {
	const n = api.MaxListed
	var all []api.SessionID
	for id := range api.SessionID(n) {
		all = append(all, id+1)
	}
	var everybody, crowds []client.LockInfo
	for i, id := range all {
		everybody = append(everybody, lockOf(fmt.Sprint(i), []api.SessionID{id}, slices.DeleteFunc(slices.Clone(all), func(one api.SessionID) bool { return one == id })))
		var holders, waiters []api.SessionID
		for j := range api.SessionID(n) {
			holders, waiters = append(holders, 1_000*id+j), append(waiters, 1_000*(id+1)+j)
		}
		crowds = append(crowds, lockOf(fmt.Sprint(i), holders, waiters))
	}
	for name, c := range map[string]struct {
		locks        []client.LockInfo
		rings, waits int
	}{"everybody waits for everybody": {everybody, 1, n * (n - 1)}, "crowds wait for crowds": {crowds, 0, n * n * n}} {
		began := time.Now()
		p := graphOf(c.locks)
		if took := time.Since(began); took > 5*time.Second { // a hundredth of it, without the race detector
			t.Errorf("%s: it took %v", name, took)
		}
		if len(p.Rings) != c.rings || len(p.Edges) != maxRows || len(p.Edges)+p.Unlisted != c.waits {
			t.Errorf("%s: %d rings, %d rows and %d more", name, len(p.Rings), len(p.Edges), p.Unlisted)
		}
	}
}

// Against a naive twin: two sessions are of one ring if each reaches the other. Each ring that is named is one, and of each group of sessions one is
// named.
func TestRings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 7
		ids := rapid.SliceOfNDistinct(rapid.Uint64Range(1, most), 0, 3, rapid.ID)
		sessions := func(what string) (list []api.SessionID) {
			for _, id := range ids.Draw(t, what) {
				list = append(list, api.SessionID(id))
			}
			return list
		}
		var locks []client.LockInfo
		waits := [most + 1][most + 1]bool{} // reaches, in the end
		for i := range rapid.IntRange(0, 8).Draw(t, "locks") {
			l := lockOf(fmt.Sprint(i), sessions("holders"), sessions("waiters"))
			locks = append(locks, l)
			for _, w := range l.Waiters {
				for _, h := range l.Holders {
					waits[w.Session][h.Session] = true
				}
			}
		}
		reaches := waits
		for k := range reaches {
			for i := range reaches {
				for j := range reaches {
					reaches[i][j] = reaches[i][j] || reaches[i][k] && reaches[k][j]
				}
			}
		}
		groups, groupOf := map[string]bool{}, map[api.SessionID]string{}
		for a := api.SessionID(1); a <= most; a++ {
			group := ""
			for b := api.SessionID(1); b <= most; b++ {
				if a != b && reaches[a][b] && reaches[b][a] || a == b {
					group += fmt.Sprint(b, " ")
				}
			}
			if strings.Count(group, " ") > 1 {
				groups[group], groupOf[a] = true, group
			}
		}
		rings := ringsOf(graphOf(locks))
		if len(rings) != len(groups) {
			t.Fatalf("%d rings are named: %v, want one of each of %v", len(rings), rings, groups)
		}
		for _, ring := range rings {
			for i, id := range ring {
				delete(groups, groupOf[id])
				if len(ring) < 2 || !waits[id][ring[(i+1)%len(ring)]] {
					t.Fatalf("%v is no ring", ring)
				}
			}
		}
		if len(groups) > 0 {
			t.Fatalf("the rings %v are not one of each group: none of %v", rings, groups)
		}
	})
}
