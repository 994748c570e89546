package master

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/misuse"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
	"pgregory.net/rapid"
)

// instant is that long after the epoch began.
func instant(d time.Duration) session.Instant { return session.Instant(time.Hour).Add(d) }

// newTestUsage returns the usage of a session that was created with its epoch.
func newTestUsage() *usage {
	all := newUsages()
	all.began = instant(0)
	return all.begin(instant(0), true)
}

// judged returns the kinds of what judge finds.
func (u *usage) judged(now session.Instant) (found []misuse.Kind) {
	u.all.advance(now)
	for _, f := range u.judge(now) {
		found = append(found, f.Kind)
	}
	return found
}

// Each misuse that is counted begins exactly at its limits: one action fewer is no misuse, nor are as many in a time so
// long that the rate is lower, nor as many that are too small a share of all.
func TestMisuseBeginsAtItsLimits(t *testing.T) {
	for _, m := range misuse.Kinds() {
		if m == misuse.HandleLeak || m == misuse.ShortLease {
			continue
		}
		t.Run(m.String(), func(t *testing.T) {
			l := m.Limits()
			within := misuse.MinTime // in which l.Count is as often as the limit wants
			if l.PerSecond > 0 {
				within = max(within, time.Duration(float64(l.Count)/l.PerSecond*float64(time.Second)))
			}
			with := func(count, others int) *usage {
				c := newTestUsage()
				for range count {
					c.count(m, "/x")
					c.count(totalOf(m), "/x")
				}
				for range others {
					c.count(totalOf(m), "/x")
				}
				return c
			}
			if found := with(l.Count, 0).judged(instant(within)); !slices.Equal(found, []misuse.Kind{m}) {
				t.Errorf("%d in %v are %v", l.Count, within, found)
			}
			if found := with(l.Count-1, 0).judged(instant(within)); len(found) > 0 {
				t.Errorf("%d are %v", l.Count-1, found)
			}
			if found := with(l.Count, 0).judged(instant(misuse.MinTime - 1)); len(found) > 0 {
				t.Errorf("after less than %v they are %v", misuse.MinTime, found)
			}
			if l.PerSecond > 0 {
				if found := with(l.Count, 0).judged(instant(within + time.Second)); len(found) > 0 {
					t.Errorf("less often they are %v", found)
				}
			}
			if l.Share > 0 {
				few := int(float64(l.Count)*(1-l.Share)/l.Share) + 1
				if found := with(l.Count, few-1).judged(instant(within)); len(found) != 1 {
					t.Errorf("%d of %d are %v", l.Count, l.Count+few-1, found)
				}
				if found := with(l.Count, few).judged(instant(within)); len(found) > 0 {
					t.Errorf("%d of %d are %v", l.Count, l.Count+few, found)
				}
			}
		})
	}
}

// What is counted is what was done in this window and the one before, at whatever times.
func TestUsageForgets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newTestUsage()
		var done []time.Duration
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "actions") {
			now += time.Duration(rapid.Int64Range(0, int64(misuse.Window)).Draw(t, "pause")) * time.Duration(rapid.IntRange(0, 3).Draw(t, "times"))
			c.all.advance(instant(now))
			c.count(misuse.Polling, "/x")
			done = append(done, now)
		}
		now += time.Duration(rapid.Int64Range(0, int64(3*misuse.Window)).Draw(t, "at last"))
		c.all.advance(instant(now))
		c.turn()
		first := max(now-now%misuse.Window-misuse.Window, 0)
		want := 0
		for _, at := range done {
			if at >= first {
				want++
			}
		}
		if got := c.sum(misuse.Polling); got != want {
			t.Fatalf("%d are counted since %v, want %d of %v", got, first, want, done)
		}
		if measured := c.all.measured(c, instant(now)); measured != now-first {
			t.Fatalf("it was measured for %v, want %v", measured, now-first)
		}
	})
}

// Counting allocates nothing.
func TestUsageAllocatesNothing(t *testing.T) {
	c, window := newTestUsage(), uint32(0)
	node := &namespace.Node{Name: "/x", Kind: api.File, Instance: 1, Content: 2}
	if n := testing.AllocsPerRun(100, func() {
		window++
		c.all.window = window
		c.count(misuse.Polling, "/x")
		c.opened(node)
		c.held("/x", time.Second, true)
		c.dropped("/x", false)
	}); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}

// A session opens a file again only if that is one of the last four, and the same.
func TestReopening(t *testing.T) {
	node := func(i, content int) *namespace.Node {
		return &namespace.Node{Name: api.Name(fmt.Sprint("/", i)), Kind: api.File, Instance: 1, Content: api.Generation(content)}
	}
	c := newTestUsage()
	for round := range 3 {
		for i := range 5 {
			c.opened(node(i, 1))
		}
		if n := c.sum(misuse.Reopening); n > 0 {
			t.Fatalf("five files in turn: %d count as opened again in round %d", n, round)
		}
	}
	c.opened(node(4, 2))
	if n := c.sum(misuse.Reopening); n > 0 {
		t.Errorf("a file that has changed: %d count as opened again", n)
	}
	c.opened(node(4, 2))
	c.opened(node(3, 1))
	equal(t, c.sum(misuse.Reopening), 2, "two files that have not: %d count as opened again")
	directory := node(9, 1)
	directory.Kind = api.Directory
	c.opened(directory)
	c.opened(directory)
	equal(t, c.sum(misuse.Reopening), 2, "a directory, which may have other children: %d count as opened again")
}

// Of the sessions that end, those count that were closed at once, or that nobody closed, soon after they were created.
func TestSessionsThatEndSoon(t *testing.T) {
	for _, c := range []struct {
		age   time.Duration
		why   api.EndReason
		begun bool
		want  misuse.Kind
	}{
		{misuse.BriefSession - 1, api.ByClose, true, misuse.BriefSessions},
		{misuse.BriefSession, api.ByClose, true, 0},
		{misuse.AbandonedUntil - 1, api.ByExpiry, true, misuse.Abandoned},
		{misuse.AbandonedUntil, api.ByExpiry, true, 0},
		{misuse.BriefSession - 1, api.ByClose, false, 0}, // of an earlier master: nobody knows how old it is
		{misuse.BriefSession - 1, api.ByExpiry, false, 0},
		{misuse.BriefSession - 1, api.ByOperator, true, 0},
	} {
		all := newUsages()
		all.began = instant(0)
		all.sessionEnded("p", all.begin(instant(0), c.begun), c.why, instant(c.age))
		got := misuse.Kind(0)
		if of, ok := all.ofPrincipal.Get("p"); ok {
			for d := misuse.Polling; d < usageCounts; d++ {
				if of.sum(d) > 0 {
					got = d
				}
			}
		}
		if got != c.want {
			t.Errorf("%v after %v, created here: %t, counts as %d, want %d", c.why, c.age, c.begun, got, c.want)
		}
	}
	all := newUsages()
	const bound = 1024 // as docs/design.md has it
	for i := range 2 * bound {
		all.sessionEnded(fmt.Sprint(i), all.begin(0, true), api.ByClose, 1)
	}
	equal(t, all.ofPrincipal.Len(), bound, "%d principals are remembered")
}

// A turn is unfenced if the holder says so last, and it took the lock without a lock-delay, and alone.
func TestUnfencedTurns(t *testing.T) {
	end := func(next holdTime, mode api.LockMode, say func(*unreadSequencers)) *usage {
		c := newTestUsage()
		r := newReports(&epoch{clock: func() session.Instant { return instant(time.Second) }}, uncounted{}, slog.New(slog.DiscardHandler))
		r.usages = c.all
		r.usages.ofSession[1] = c
		r.holdTimes.beginHold("/x", next, instant(0))
		say(&c.all.unread)
		r.lockLeft(namespace.Left{Lock: namespace.Ref{Name: "/x"}, Holding: &api.Holding{Session: 1, Generation: 7, Mode: mode, End: api.ByClose}}, 0)
		return c
	}
	unread := func(u *unreadSequencers) { u.note(7, true) }
	for _, c := range []struct {
		name string
		turn holdTime
		say  func(*unreadSequencers)
		want int
	}{
		{"nobody has read it", holdTime{generation: 7}, unread, 1},
		{"nobody says anything", holdTime{generation: 7}, func(*unreadSequencers) {}, 0},
		{"it is of another lock", holdTime{generation: 7}, func(u *unreadSequencers) { u.note(7+1024, true) }, 0},
		{"it is of an earlier turn", holdTime{generation: 8}, unread, 0},
		{"a stranger has said so before", holdTime{generation: 7}, func(u *unreadSequencers) { u.note(7, true); u.note(7, false) }, 0},
		{"there is a lock-delay", holdTime{generation: 7, delays: true}, unread, 0},
		{"the lock may be kept", holdTime{generation: 7, cached: true}, unread, 0},
	} {
		if got := end(c.turn, api.Exclusive, c.say).sum(misuse.Unfenced); got != c.want {
			t.Errorf("%s: %d turns count as unfenced, want %d", c.name, got, c.want)
		}
	}
	failIf(t, end(holdTime{generation: 7}, api.Shared, unread).sum(countHolds) > 0, "a reader has a turn for itself")
}

// Anybody may say that the sequencer of a lock was read: the word of its holder alone counts.
func TestOnlyTheHolderSaysWhetherItHasReadItsSequencer(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		holder, stranger := m.client(t, 1), m.client(t, 2)
		held, theirs := holder.open(t, "/ls/local/lock", api.MayCreate).Handle, stranger.open(t, "/ls/local/lock", api.MayCreate).Handle
		g := holder.try(t, held, api.Exclusive).Generation
		for _, c := range []struct {
			who    Handle
			unread bool
			want   bool
		}{{theirs, true, false}, {held, true, true}, {theirs, false, true}, {held, false, false}} {
			if m.Locks.NoteReading(c.who, g, c.unread); m.epoch.reports.usages.unread.has(g) != c.want {
				t.Errorf("session %v says unread: %t; what counts is the contrary", c.who.Owner.Session, c.unread)
			}
		}
	})
}

// A session leaks handles if it has very many, goes on opening and does not close, and most are on the same nodes, or it will soon
// be able to open no more.
func TestHandleLeak(t *testing.T) {
	for _, c := range []struct {
		name                        string
		nodes, handles, opens, ends int
		want                        bool
	}{
		{"many on one node", 1, 256, 64, 0, true},
		{"fewer", 1, 255, 64, 0, false},
		{"on nodes of their own", 256, 256, 64, 0, false},
		{"two on each", 128, 256, 64, 0, true},
		{"no more of them", 1, 256, 63, 0, false},
		{"some are closed", 1, 256, 64, 7, false},
		{"more than half of the limit, of their own", 5001, 5001, 64, 0, true},
	} {
		inSolo(t, nil, func(t *testing.T, m *soloMaster) {
			mu := m.epoch.mu.hold()
			defer mu.end()
			by := m.epoch.reports.usages.begin(m.epoch.clock(), true)
			for i := range c.handles {
				h := Handle{Owner: namespace.Owner{Session: 1, Handle: api.HandleID(i + 1)}, Node: namespace.Ref{Name: api.Name(fmt.Sprint("/", i%c.nodes)), Instance: 1}}
				m.tables.Handles.Bind(m.tables.Handles.Enter(h, "p"), h.Node)
			}
			for range c.opens {
				by.count(countOpens, "/x")
			}
			for range c.ends {
				by.count(countCloses, "")
			}
			m.lost.Add(int64(misuse.MinTime))
			if found := findLeak(mu, m.Inspector, 1, by, m.epoch.clock()); (found != nil) != c.want {
				t.Errorf("%s: found %+v", c.name, found)
			}
		})
	}
}

// A report has a bound, the worst come first, and what is not listed is counted.
func TestLintIsBounded(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		m.epoch.mu.Lock()
		for i := range api.MaxListed + 50 {
			m.epoch.reports.sessionInherited(api.SessionID(i+1), m.epoch.clock())
			for range 60 + i {
				m.epoch.reports.usages.ofSession[api.SessionID(i+1)].count(misuse.Polling, "/x")
			}
		}
		m.epoch.mu.Unlock()
		m.lost.Add(int64(misuse.MinTime))
		r, err := m.Lint(context.Background(), "", "", misuse.Options{Most: 1 << 16})
		if err != nil || len(r.Findings) != api.MaxListed || r.More != 50 || r.Findings[0].Who.Session != api.MaxListed+50 || r.Since != misuse.MinTime {
			t.Errorf("%d are listed, and %d more, %v: %v", len(r.Findings), r.More, r.Since, err)
		}
		if r, err = m.Lint(context.Background(), "", "", misuse.Options{}); err != nil || len(r.Findings) != usualFindings {
			t.Errorf("%d are listed: %v", len(r.Findings), err)
		}
		if r, err = m.Lint(context.Background(), "", "", misuse.Options{Kinds: []misuse.Kind{misuse.Reopening}}); err != nil || len(r.Findings) > 0 {
			t.Errorf("of another misuse %d are listed: %v", len(r.Findings), err)
		}
		if r, err = m.Lint(context.Background(), "", "/x/y", misuse.Options{}); err != nil || len(r.Findings) > 0 {
			t.Errorf("below the node %d are listed: %v", len(r.Findings), err)
		}
		if r, err = m.Lint(context.Background(), "", "/x", misuse.Options{Session: 9}); err != nil || len(r.Findings) != 1 || r.Findings[0].Path != "/ls/local/x" {
			t.Errorf("of one session %d are listed: %v", len(r.Findings), err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err = m.Lint(ctx, "", "", misuse.Options{}); err == nil {
			t.Error("a call that has ended is answered")
		}
	})
}
