package master

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// waitingFor is the naive twin of asking: it returns those who wait because a lock is held in that mode, in the order of the
// queue. Such a waiter could not hold the lock beside the holders, or stands behind one that could not.
func waitingFor(q *tables.Queues, lock namespace.Ref, mode api.LockMode) (list []*tables.Waiter) {
	line := slices.DeleteFunc(slices.Clone(q.ByName[lock.Name]), func(w *tables.Waiter) bool { return w.Lock != lock || q.IsSkipped(w) })
	for i, w := range line {
		if slices.ContainsFunc(line[:i+1], func(before *tables.Waiter) bool { return before.Claim.Mode.Conflicts(mode) }) {
			list = append(list, w)
		}
	}
	return list
}

// noise is a random history of one lock and several handles. Some of these get events of conflicting requests, and some of those
// may keep the lock. The model compares how things stand before and after each step; it does not know what was told earlier.
type noise struct {
	*chance
	t       *testing.T
	m       *soloMaster
	clients []*soloClient
	handles map[namespace.Owner]Handle
	owners  []namespace.Owner // of those, in order
	asked   []*noisyRequest   // which have no answer yet
	count   int               // of requests
	told    int               // events
}

type noisyRequest struct {
	c     *soloClient
	h     Handle
	claim raftfsm.Claim
	quiet bool
	leave context.CancelFunc
	done  <-chan lockAnswer
}

// standing is how things stand.
type standing struct {
	node    namespace.Node
	waiting []*tables.Waiter
}

// noisyStep is what was done, as far as the next standing does not show it.
type noisyStep struct {
	refused  *noisyRequest   // at once
	recalled bool            // it has had the lock asked back before
	holder   namespace.Owner // this handle may have got the lock again, or is new to the master
	waiter   namespace.Owner // the requests that wait through this handle count as new
}

func (n *noise) look() (s standing) {
	n.m.epoch.mu.Lock()
	defer n.m.epoch.mu.Unlock()
	node, _ := n.m.epoch.state().Tree.Get("/f")
	s.node = *node
	if len(node.Holders) > 0 {
		s.waiting = waitingFor(n.m.tables.Queues, node.Ref(), node.Mode)
	}
	return s
}

func (n *noise) clientOf(o namespace.Owner) *soloClient {
	return n.clients[slices.IndexFunc(n.clients, func(c *soloClient) bool { return c.who.Session == o.Session })]
}

// mutation is one of a client that waits for the answers to what it has asked.
func (n *noise) mutation(c *soloClient) session.Mutation {
	mutation := c.mutation()
	mutation.Outstanding = nil
	for _, r := range n.asked {
		if r.c == c {
			mutation.Outstanding = append(mutation.Outstanding, r.claim.Mutation.Number)
		}
	}
	mutation.Outstanding = append(mutation.Outstanding, mutation.Number)
	return mutation
}

func (n *noise) request() *noisyRequest {
	n.count++
	owner := n.owners[n.below(len(n.owners))]
	r := &noisyRequest{c: n.clientOf(owner), h: n.handles[owner], quiet: n.percent(35)}
	r.claim = raftfsm.Claim{Mutation: n.mutation(r.c), Handle: owner.Handle, Mode: []api.LockMode{api.Exclusive, api.Shared}[n.below(2)], Reason: fmt.Sprint("request ", n.count)}
	return r
}

// send has a request wait in the queue, or come back to it, and reports whether it was answered at once, without the lock.
func (n *noise) send(r *noisyRequest, before standing) (refused bool) {
	ctx, leave := context.WithCancel(n.t.Context())
	r.leave, r.done = leave, r.c.waits(ctx, requestFor(r.claim, r.h).quietIf(r.quiet))
	n.hear(r)
	node := n.look().node
	return !slices.Contains(n.asked, r) && before.node.Holds(r.h.Owner) == node.Holds(r.h.Owner)
}

// hear takes note of the answer to a request, if there is one.
func (n *noise) hear(r *noisyRequest) {
	select {
	case a := <-r.done:
		if api.CodeOf(a.err) != api.Uncertain { // else it has left, and may come back
			n.asked = slices.DeleteFunc(n.asked, func(other *noisyRequest) bool { return other == r })
		}
	default:
	}
}

func (n *noise) try(r *noisyRequest, before standing) (done noisyStep) {
	n.m.epoch.mu.Lock()
	done.recalled = len(before.node.Holders) > 0 && before.node.Mode.Conflicts(r.claim.Mode) && n.m.tables.Queues.FirstAhead(before.node.Ref(), r.claim.Mode) == nil
	n.m.epoch.mu.Unlock()
	for _, holder := range before.node.Holders {
		done.recalled = done.recalled && n.handles[holder.Owner].CachesLock && holder.Owner != r.h.Owner
	}
	if _, err := n.m.Locks.TryAcquire(n.t.Context(), requestFor(r.claim, r.h).quietIf(r.quiet)); err != nil {
		done.refused = r
	}
	return done
}

// forget has the master know no more of a handle than the next master would.
func (s *soloMaster) forget(owner namespace.Owner) {
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	s.tables.Handles.Remove(s.tables.Handles.Find(owner))
	delete(s.tables.Handles.Own(owner.Session).Earlier, owner.Handle)
}

// act does something.
func (n *noise) act(before standing) (done noisyStep) {
	var some *noisyRequest
	if len(n.asked) > 0 {
		some = n.asked[n.below(len(n.asked))]
	}
	holds := some != nil && before.node.Holds(some.h.Owner)
	switch what := n.below(100); {
	case what < 35:
		r := n.request()
		n.asked = append(n.asked, r)
		if n.send(r, before) {
			done.refused = r
		}
	case what < 50:
		done = n.try(n.request(), before)
	case what < 70 && len(before.node.Holders) > 0:
		done.holder = before.node.Holders[n.below(len(before.node.Holders))].Owner
		report(n.t, n.m.Locks.Release(n.t.Context(), n.mutation(n.clientOf(done.holder)), n.handles[done.holder], before.node.Lock))
	case what < 78 && some != nil:
		_, _ = n.m.Locks.Cancel(n.t.Context(), some.claim.Mutation)
		n.asked = slices.DeleteFunc(n.asked, func(r *noisyRequest) bool { return r == some })
	case what < 86 && some != nil:
		some.leave()
	case what < 93 && some != nil && !holds:
		if n.send(some, before) {
			done.refused = some
		}
	case what < 96 && some != nil && !holds: // a Close that does not come to the log
		done.waiter = some.h.Owner
		mu := n.m.epoch.mu.hold()
		n.m.tables.Queues.Closing[done.waiter]++
		n.m.Locks.offers.closeEnded(mu, &raftfsm.Close{Mutation: session.Mutation{Session: done.waiter.Session}, Handle: done.waiter.Handle})
		mu.end()
	case what >= 96: // as at a new master, which does not know the handle
		h := n.handles[n.owners[n.below(len(n.owners))]]
		done.holder, h.Epoch = h.Owner, 0
		n.m.forget(h.Owner)
		report(n.t, n.m.Files.Use(h, namespace.ToWrite, false))
	}
	return done
}

// expected returns the events that a holder has to get for a step, by the reasons of the requests; recalls are "recall".
func (n *noise) expected(h Handle, before, after standing, done noisyStep) (list []string) {
	tell := func(quiet bool, reason string) bool {
		switch {
		case quiet && h.CachesLock:
			list = append(list, "recall")
		case !quiet:
			list = append(list, reason)
		}
		return !quiet || h.CachesLock
	}
	if h.Owner == done.holder || after.node.Lock != before.node.Lock || !before.node.Holds(h.Owner) {
		for _, quiet := range []bool{false, true} {
			for _, w := range after.waiting {
				if w.Quiet == quiet && tell(w.Quiet, w.Claim.Reason) {
					return list
				}
			}
		}
		return list
	}
	for _, w := range after.waiting {
		if !slices.Contains(before.waiting, w) || w.Claim.By() == done.waiter {
			tell(w.Quiet, w.Claim.Reason)
		}
	}
	if r := done.refused; r != nil && r.h.Owner != h.Owner && (len(after.waiting) > 0 || r.claim.Mode.Conflicts(after.node.Mode)) {
		if done.recalled {
			list = append(list, "recall")
		}
		if !done.recalled || !r.quiet {
			tell(r.quiet, r.claim.Reason)
		}
	}
	return list
}

// A holder is told once of each request that waits because of it, and a new holder of the first one only, whatever has happened
// to the lock and its queue. Nobody gets any other event.
func TestHoldersAreToldWhoWaits(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inSolo(t, nil, func(t *testing.T, m *soloMaster) {
				n := &noise{chance: &chance{random: rand.New(rand.NewPCG(seed, 11))}, t: t, m: m, handles: map[namespace.Owner]Handle{}}
				n.clients, _ = lockers(t, m)
				for _, c := range n.clients {
					for _, h := range []Handle{c.open(t, "/ls/local/f", api.MustExist).Handle, c.watches(t, "/ls/local/f", api.EventConflictingLock, false), c.watches(t, "/ls/local/f", api.EventConflictingLock, true)} {
						n.handles[h.Owner], n.owners = h, append(n.owners, h.Owner)
					}
				}
				for range 250 {
					n.step(t)
				}
				failIf(t, n.told < 40, "%d events: the test proves nothing", n.told)
			})
		})
	}
}

func (n *noise) step(t *testing.T) {
	t.Helper()
	var heard []int // of each client, before
	for _, c := range n.clients {
		heard = append(heard, len(c.conflicts()))
	}
	before := n.look()
	done := n.act(before)
	time.Sleep(time.Second) // for what is retried with the clock, and until the KeepAlives have carried the events
	synctest.Wait()
	for _, r := range slices.Clone(n.asked) {
		n.hear(r)
	}
	after, told := n.look(), map[namespace.Owner][]string{}
	for i, c := range n.clients {
		for _, e := range c.conflicts()[heard[i]:] {
			n.told++
			owner, what := namespace.Owner{Session: c.who.Session, Handle: e.Handle}, e.Explanation
			if e.Recall {
				what = "recall"
			}
			if told[owner] = append(told[owner], what); e.Generation != after.node.Lock {
				t.Errorf("told of generation %d of the lock; it is %d", e.Generation, after.node.Lock)
			}
		}
	}
	for owner, h := range n.handles {
		var want []string
		if after.node.Holds(owner) && h.Events.Has(api.EventConflictingLock) {
			want = n.expected(h, before, after, done)
		}
		if !slices.Equal(told[owner], want) {
			t.Fatalf("request %d, %+v: holder %v was told %q, want %q; before %+v, after %+v", n.count, done, owner, told[owner], want, before, after)
		}
	}
}

// A new master may hear of a handle first when a path is opened that is relative to it. The holder is told who waits once it uses
// the handle itself.
func TestHolderOfARelativeOpenIsTold(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, _ := lockers(t, m)
		other := c[1].opens(t, "/ls/local/d", raftfsm.Open{Create: api.MayCreate, Kind: api.Directory}).Handle
		q := c[0].asked("/ls/local/d", raftfsm.Open{Kind: api.Directory})
		q.Handle.Events = EventSet(0).With(api.EventConflictingLock)
		o := must(m.Files.Open(t.Context(), q))(t)
		held := o.Handle
		c[0].try(t, held, api.Exclusive)
		m.forget(held.Owner)
		c[1].wait(t.Context(), other, c[1].askingFor(other, api.Exclusive, "report"))
		held.Epoch = 0
		q = c[0].asked("/ls/local/f", raftfsm.Open{})
		q.Directory = held
		must(m.Files.Open(t.Context(), q))(t)
		noErr(t, m.Files.Use(held, namespace.ToWrite, false))
		equalAll(t, conflictsOf(c[0]), []string{"report"}, "the holder was told %q")
	})
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

// askingFor is a claim with a reason.
func (c *soloClient) askingFor(h Handle, mode api.LockMode, reason string) raftfsm.Claim {
	claim := c.claim(h, mode)
	claim.Reason = reason
	return claim
}

// A TryAcquire whose client gives up while the lock is asked back has asked all the same: the recall is told to no program.
func TestTryThatIsGivenUpIsTold(t *testing.T) {
	for quiet, want := range map[bool][]string{false: {"recall", "backup"}, true: {"recall"}} {
		withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
			silent := m.client(t, 9) // it acknowledges nothing
			silent.try(t, silent.watches(t, "/ls/local/f", api.EventConflictingLock, true), api.Exclusive)
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
			one := c[0].watches(t, "/ls/local/f", api.EventConflictingLock, true)
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
