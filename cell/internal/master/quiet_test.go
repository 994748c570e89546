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

// listening opens a handle through which a client is told of conflicting requests, and acknowledges nothing of it.
func (c *soloClient) listening(t *testing.T, path string, keeps bool) Handle {
	t.Helper()
	q := c.asked(path, raftfsm.Open{})
	q.Handle.Events, q.Handle.CachesLock = EventSet(0).With(api.EventConflictingLock), keeps
	o, err := c.m.Files.Open(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
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

// A request that is quiet is told to nobody: neither to who has the lock when it comes, nor to who gets the lock while it waits.
// Those that are not quiet are told wherever they stand.
func TestQuietRequestsAreToldToNobody(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		listening := []Handle{}
		for _, one := range c {
			listening = append(listening, one.listening(t, "/ls/local/f", false))
		}
		told := func(who int, want ...string) {
			t.Helper()
			if got := conflictsOf(c[who]); !slices.Equal(got, want) {
				t.Errorf("client %d was told %q, want %q", who, got, want)
			}
		}
		release := func(who int) {
			t.Helper()
			got := c[who].tokenOf(t, listening[who])
			if err := m.Locks.Release(t.Context(), c[who].mutation(), listening[who], got.Generation); err != nil {
				t.Fatal(err)
			}
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
	if err != nil || !node.Holds(h.Owner) {
		t.Fatalf("%+v does not hold the lock: %v", h.Owner, err)
	}
	return raftfsm.Answer{Lock: node.Ref(), Generation: node.Lock, Mode: node.Mode}
}

// Who is granted a lock for which only quiet ones wait is told of nobody; if it may keep the lock it gives that back all the same.
func TestSuccessorHearsOfNobodyQuiet(t *testing.T) {
	for keeps, want := range map[bool][]string{false: {}, true: {"recall"}} {
		inSolo(t, nil, func(t *testing.T, m *soloMaster) {
			c, h := lockers(t, m)
			first := c[0].try(t, h[0], api.Exclusive)
			second := c[1].listening(t, "/ls/local/f", keeps)
			got := c[1].wait(t.Context(), second, c[1].claim(second, api.Exclusive))
			last := c[2].waitQuietly(t.Context(), h[2], c[2].claim(h[2], api.Exclusive))
			if err := m.Locks.Release(t.Context(), c[0].mutation(), h[0], first.Generation); err != nil {
				t.Fatal(err)
			}
			mine := answered(t, got)
			if told := conflictsOf(c[1]); mine.err != nil || !slices.Equal(told, want) {
				t.Errorf("keeps %t: told %q, %v; want %q", keeps, told, mine.err, want)
			}
			if err := m.Locks.Release(t.Context(), c[1].mutation(), second, mine.Generation); err != nil {
				t.Fatal(err)
			}
			if a := answered(t, last); a.err != nil {
				t.Error(a.err)
			}
		})
	}
}

// A Close that did not come to the log tells the holder anew of those who wait through the handle: as quiet as they are.
func TestQuietWaiterOfAnUnclosedHandle(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
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
