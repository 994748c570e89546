package master

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// listening opens a handle through which a client gets events of conflicting requests, and acknowledges none.
func (c *soloClient) listening(t *testing.T, path string, keeps bool) Handle {
	t.Helper()
	q := c.asked(path, raftfsm.Open{})
	q.Handle.Events, q.Handle.CachesLock = EventSet(0).With(api.EventConflictingLock), keeps
	o := must(c.m.Files.Open(t.Context(), q))(t)
	return o.Handle
}

// waitQuietly is wait for a request that is quiet.
func (c *soloClient) waitQuietly(ctx context.Context, h Handle, claim raftfsm.Claim) <-chan lockAnswer {
	return c.waits(ctx, requestFor(claim, h).quietIf(true))
}

// conflictsOf returns what a client was told about conflicting requests, by the reasons of these; recalls have "recall".
func conflictsOf(c *soloClient) []string {
	time.Sleep(time.Second) // its KeepAlive carries them
	synctest.Wait()
	list := []string{}
	for _, e := range c.conflicts() {
		if e.Recall {
			list = append(list, "recall")
		} else {
			list = append(list, e.Explanation)
		}
	}
	return list
}

// A quiet request makes no event: neither for the holder when it comes, nor for one that gets the lock while it waits.
// Those that are not quiet are told wherever they stand.
func TestQuietRequestsAreToldToNobody(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		listening := []Handle{}
		for _, one := range c {
			listening = append(listening, one.listening(t, "/ls/local/f", false))
		}
		told := func(who int, want ...string) {
			t.Helper()
			equalAll(t, conflictsOf(c[who]), want, "client %d was told %q", who)
		}
		release := func(who int) {
			t.Helper()
			got := c[who].tokenOf(t, listening[who])
			noErr(t, m.Locks.Release(t.Context(), c[who].mutation(), listening[who], got.Generation))
		}
		asking := func(who int, h Handle, reason string) raftfsm.Claim {
			claim := c[who].claim(h, api.Exclusive)
			claim.Reason = reason
			return claim
		}
		c[0].try(t, listening[0], api.Exclusive)
		if _, err := m.Locks.TryAcquire(t.Context(), requestFor(asking(1, h[1], "try"), h[1]).quietIf(true)); !errors.Is(err, api.LockHeld) {
			t.Fatal(err)
		}
		c[1].waitQuietly(t.Context(), listening[1], asking(1, listening[1], "quiet"))
		told(0)
		c[2].wait(t.Context(), listening[2], asking(2, listening[2], "restore"))
		told(0, "restore")
		told(1)
		release(0)
		told(1, "restore") // who was quiet, and has the lock now
		c[0].waitQuietly(t.Context(), listening[0], asking(0, listening[0], "quiet, too"))
		c[1].wait(t.Context(), h[1], asking(1, h[1], "again"))
		told(1, "restore", "again")
		release(1)
		told(2, "again") // not of the one in front of it
		release(2)
		told(0, "restore", "again")
		release(0)
	})
}

// tokenOf returns the grant that a handle has.
func (c *soloClient) tokenOf(t *testing.T, h Handle) raftfsm.Answer {
	t.Helper()
	node, err := c.m.epoch.state().Tree.Resolve(h.Node)
	stopIf(t, err != nil || !node.Holds(h.Owner), "%+v does not hold the lock: %v", h.Owner, err)
	return raftfsm.Answer{Lock: node.Ref(), Generation: node.Lock, Mode: node.Mode}
}

// A client that gets a lock for which only quiet requests wait gets no event; if it may keep the lock it gives that back all the same.
func TestSuccessorHearsOfNobodyQuiet(t *testing.T) {
	for keeps, want := range map[bool][]string{false: {}, true: {"recall"}} {
		withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
			first := c[0].try(t, h[0], api.Exclusive)
			second := c[1].listening(t, "/ls/local/f", keeps)
			got := c[1].wait(t.Context(), second, c[1].claim(second, api.Exclusive))
			last := c[2].waitQuietly(t.Context(), h[2], c[2].claim(h[2], api.Exclusive))
			noErr(t, m.Locks.Release(t.Context(), c[0].mutation(), h[0], first.Generation))
			mine := answered(t, got)
			if told := conflictsOf(c[1]); mine.err != nil || !slices.Equal(told, want) {
				t.Errorf("keeps %t: told %q, %v; want %q", keeps, told, mine.err, want)
			}
			noErr(t, m.Locks.Release(t.Context(), c[1].mutation(), second, mine.Generation))
			report(t, answered(t, last).err)
		})
	}
}

// A Close that did not come to the log tells the holder anew of those who wait through the handle: as quiet as they are.
func TestQuietWaiterOfAnUnclosedHandle(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		held := c[0].listening(t, "/ls/local/f", false)
		c[0].try(t, held, api.Exclusive)
		ctx, cancel := context.WithCancel(t.Context())
		waits := c[1].waitQuietly(ctx, h[1], c[1].claim(h[1], api.Exclusive))
		m.epoch.mu.Lock()
		by := namespace.Owner{Session: c[1].who.Session, Handle: h[1].Owner.Handle}
		m.tables.queues.closing[by]++
		m.Locks.offers.handleClosed(by)
		m.epoch.mu.Unlock()
		if told := conflictsOf(c[0]); len(told) > 0 {
			t.Errorf("the holder was told %q", told)
		}
		cancel()
		answered(t, waits)
	})
}

// askingFor is a claim with a reason.
func (c *soloClient) askingFor(h Handle, mode api.LockMode, reason string) raftfsm.Claim {
	claim := c.claim(h, mode)
	claim.Reason = reason
	return claim
}

// A request that is not quiet, behind one that is, waits for the same holders, though its own mode would go together with theirs:
// they get an event, in whichever order they came, and by whichever call.
func TestWhoIsBehindAQuietRequestAsks(t *testing.T) {
	for name, test := range map[string]struct {
		waits, quiet, first bool // in the queue; the reader who comes last is quiet, too; the holder came first
		want                []string
	}{
		"it waits":                   {waits: true, first: true, want: []string{"report"}},
		"it tries":                   {first: true, want: []string{"report"}},
		"it waits, quiet":            {waits: true, quiet: true, first: true},
		"it tries, quiet":            {quiet: true, first: true},
		"it waited before the grant": {waits: true, want: []string{"report"}},
	} {
		t.Run(name, func(t *testing.T) {
			withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
				holder := c[0].listening(t, "/ls/local/f", false)
				var release func()
				if test.first {
					c[0].try(t, holder, api.Shared)
					release = func() {}
				} else { // another has the lock, and gives it to the holder while the two wait
					got := c[2].try(t, h[2], api.Exclusive)
					c[0].wait(t.Context(), holder, c[0].claim(holder, api.Shared))
					release = func() {
						noErr(t, m.Locks.Release(t.Context(), c[2].mutation(), h[2], got.Generation))
					}
				}
				c[1].waitQuietly(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
				last := c[2].listening(t, "/ls/local/f", false)
				claim := c[2].askingFor(last, api.Shared, "report")
				switch {
				case !test.waits:
					if _, err := m.Locks.TryAcquire(t.Context(), requestFor(claim, last).quietIf(test.quiet)); !errors.Is(err, api.LockHeld) {
						t.Fatal(err)
					}
				case test.quiet:
					c[2].waitQuietly(t.Context(), last, claim)
				default:
					c[2].wait(t.Context(), last, claim)
				}
				release()
				equalAll(t, conflictsOf(c[0]), test.want, "the holder was told %q")
			})
		})
	}
}

// The same after a Close of its handle that did not come to the log: it was skipped meanwhile.
func TestWhoIsBehindAQuietRequestAsksAfterAClose(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		c[0].try(t, c[0].listening(t, "/ls/local/f", false), api.Shared)
		c[1].waitQuietly(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
		ctx, cancel := context.WithCancel(t.Context())
		waits := c[2].wait(ctx, h[2], c[2].askingFor(h[2], api.Shared, "report"))
		m.epoch.mu.Lock()
		by := namespace.Owner{Session: c[2].who.Session, Handle: h[2].Owner.Handle}
		m.tables.queues.closing[by]++
		m.Locks.offers.handleClosed(by)
		m.epoch.mu.Unlock()
		equalAll(t, conflictsOf(c[0]), []string{"report", "report"}, "the holder was told %q")
		cancel()
		answered(t, waits)
	})
}

// A TryAcquire whose client gives up while the lock is asked back has asked all the same: the recall is told to no program.
func TestTryThatIsGivenUpIsTold(t *testing.T) {
	for quiet, want := range map[bool][]string{false: {"recall", "backup"}, true: {"recall"}} {
		withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
			silent := m.client(t, 9) // it acknowledges nothing
			silent.try(t, silent.listening(t, "/ls/local/f", true), api.Exclusive)
			ctx, cancel := context.WithTimeout(t.Context(), maxRecall/2)
			defer cancel()
			if _, err := m.Locks.TryAcquire(ctx, requestFor(c[0].askingFor(h[0], api.Exclusive, "backup"), h[0]).quietIf(quiet)); err == nil {
				t.Error("it has the lock")
			}
			for _, e := range silent.hear(t) {
				silent.note(e)
			}
			equalAll(t, conflictsOf(silent), want, "quiet %t: told %q", quiet)
		})
	}
}

// A quiet TryAcquire has a lock given back also if more keep it than are waited for.
func TestQuietTryRecallsOfVeryMany(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		var keeping []Handle
		for range maxRecalled + 1 {
			one := c[0].listening(t, "/ls/local/f", true)
			c[0].try(t, one, api.Shared)
			keeping = append(keeping, one)
		}
		began := time.Now()
		if _, err := m.Locks.TryAcquire(t.Context(), requestFor(c[1].claim(h[1], api.Exclusive), h[1]).quietIf(true)); !errors.Is(err, api.LockHeld) || time.Since(began) > maxRecall/2 {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
		if told := conflictsOf(c[0]); len(told) != len(keeping) || slices.Contains(told, "") {
			t.Errorf("%d of %d were asked: %q", len(told), len(keeping), told)
		}
	})
}
