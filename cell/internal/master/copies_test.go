package master

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// chance is a source of random numbers for several goroutines.
type chance struct {
	mu     sync.Mutex // guards random
	random *rand.Rand
}

func (c *chance) below(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

func (c *chance) percent(n int) bool { return c.below(100) < n }

// upTo sleeps for a random time below d.
func (c *chance) upTo(d time.Duration) { time.Sleep(time.Duration(c.below(int(d)))) }

// troubledLog refuses some entries before they are written.
type troubledLog struct {
	*soloMaster
	*chance
	refused int
}

// notAppended is the error of an entry that was refused before it was written.
var notAppended = api.Errorf(api.NotMaster, "refused before it was written")

func (l *troubledLog) Append(data []byte) ([]raftfsm.Result, error) {
	l.upTo(2 * time.Millisecond)
	if l.percent(10) {
		l.refused++
		return nil, notAppended
	}
	return l.soloMaster.Append(data)
}

// congest makes the proposer accept nothing now and then, until ctx ends.
func (s *soloMaster) congest(ctx context.Context, random *chance) {
	set := func(why error) {
		s.epoch.proposer.mu.Lock()
		defer s.epoch.proposer.mu.Unlock()
		s.epoch.proposer.closed = why
	}
	for ctx.Err() == nil {
		random.upTo(30 * time.Millisecond)
		set(api.Errorf(api.Unavailable, "too many changes wait"))
		random.upTo(3 * time.Millisecond)
		set(nil)
	}
}

// copier is a client whose requests arrive in several copies. It gives up attempts, or their answers are lost, and
// sends the request again; copies that the network has delayed arrive at any time. It relies only on the answers to its
// own attempts.
type copier struct {
	*soloClient
	*chance
	t     *testing.T
	ctx   context.Context
	stray sync.WaitGroup
	lost  int // answers
	held  map[namespace.Owner]bool
}

// ask sends a request until it gets a final answer.
func ask[T any](c *copier, do func(ctx context.Context) (T, error)) (T, error) {
	for {
		for c.percent(20) {
			c.stray.Go(func() {
				c.upTo(3 * time.Second)
				ctx, cancel := context.WithTimeout(c.ctx, time.Second)
				defer cancel()
				_, _ = do(ctx)
			})
		}
		ctx, cancel := context.WithCancel(c.ctx)
		if c.percent(30) {
			ctx, cancel = context.WithTimeout(c.ctx, time.Duration(c.below(int(5*time.Millisecond))))
		}
		answer, err := do(ctx)
		cancel()
		switch api.CodeOf(err) {
		case api.NotMaster, api.Unavailable, api.Uncertain:
		default:
			if c.percent(85) {
				return answer, err
			}
			c.lost++
		}
		c.upTo(10 * time.Millisecond)
	}
}

// verdict is what the copies of one Open are answered: all of them that it was done, or all of them that it never will be.
type verdict struct {
	c  *copier
	of namespace.Owner

	mu      sync.Mutex // guards the fields below
	done    bool       // whether a copy was told so
	refused error      // what a copy was told; nil if none was refused
}

// hear takes note of the answer to a copy. That its number is finished says nothing about the others.
func (v *verdict) hear(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var e *api.Error
	switch {
	case err == nil:
		v.done = true
	case errors.As(err, &e) && e.Final && e.Code != api.InvalidArgument:
		v.refused = err
	default:
		return
	}
	if v.done && v.refused != nil {
		v.c.t.Errorf("copies of the Open of %v were answered both ways: one was done, one refused: %v", v.of, v.refused)
	}
}

// openAt opens a node; ok is false if the cell refused.
func (c *copier) openAt(name api.Name, ephemeral bool) (h Handle, ok bool) {
	mutation := c.mutation()
	path, _ := name.In("local")
	rights := namespace.ToRead | namespace.ToWrite
	owner := namespace.Owner{Session: c.who.Session, Handle: api.HandleID(mutation.Number)}
	create := []api.Create{api.MustExist, api.MayCreate, api.MustCreate}[c.below(3)]
	v := verdict{c: c, of: owner}
	o, err := ask(c, func(ctx context.Context) (Opened, error) {
		o, err := c.m.Files.Open(ctx, OpenRequest{
			Mutation: mutation, Path: path, Handle: Handle{Owner: owner, Rights: rights, Events: EventSet(0).With(api.EventConflictingLock)},
			Create: raftfsm.Open{Create: create, Kind: api.File, Ephemeral: ephemeral, Rights: rights},
		})
		v.hear(err)
		return o, err
	})
	if err != nil {
		c.leavesNothing(name, owner, fmt.Sprintf("an Open that was refused (%v)", err))
	}
	return o.Handle, err == nil
}

// leavesNothing checks that a handle holds nothing.
func (c *copier) leavesNothing(name api.Name, owner namespace.Owner, who string) {
	if node, there := c.m.epoch.state().Tree.Get(name); there && (node.Holds(owner) || slices.Contains(node.Openers, owner)) {
		c.t.Errorf("%s has left something: %+v", who, node)
	}
}

// lockOnce acquires the lock in some way and releases it in some way; the last
// one is to close the handle without a release.
func (c *copier) lockOnce(h Handle) {
	mutation := c.mutation()
	claim := raftfsm.Claim{Mutation: mutation, Handle: h.Owner.Handle, Mode: []api.LockMode{api.Exclusive, api.Shared}[c.below(2)]}
	try, request, patience := c.percent(30), requestFor(claim, h).quietIf(c.percent(30)), time.Hour
	if c.percent(40) {
		patience = time.Duration(c.below(int(20 * time.Millisecond)))
	}
	until := time.Now().Add(patience)
	gaveUp := api.Errorf(api.DeadlineExceeded, "gave up")
	got, err := ask(c, func(ctx context.Context) (raftfsm.Answer, error) {
		if try {
			return c.m.Locks.TryAcquire(ctx, request)
		}
		within, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		a, err := c.m.Locks.Acquire(within, request)
		if errors.Is(err, api.Uncertain) && time.Now().After(until) {
			return a, gaveUp
		}
		return a, err
	})
	if errors.Is(err, api.DeadlineExceeded) {
		got, err = ask(c, func(ctx context.Context) (raftfsm.Answer, error) {
			a, err := c.m.Locks.Cancel(ctx, mutation)
			return a, cmp.Or(err, a.Err())
		})
	}
	node, gone := c.m.epoch.state().Tree.Resolve(h.Node)
	if err != nil {
		if gone == nil && node.Holds(h.Owner) != c.held[h.Owner] {
			c.t.Errorf("a request for a lock was refused (%v), and held (%v before): %+v", err, c.held[h.Owner], node)
		}
		return
	}
	c.held[h.Owner] = true
	failIf(c.t, gone == nil && !node.Holds(h.Owner), "a lock was granted to %+v that %+v does not show", h.Owner, node)
	c.upTo(5 * time.Millisecond)
	if c.percent(70) {
		release := c.mutation()
		if _, err := ask(c, func(ctx context.Context) (any, error) { return nil, c.m.Locks.Release(ctx, release, h, got.Generation) }); err != nil {
			c.t.Errorf("release: %v", err)
		}
		delete(c.held, h.Owner)
		if node, gone := c.m.epoch.state().Tree.Resolve(h.Node); gone == nil && node.Holds(h.Owner) {
			c.t.Errorf("a lock that was released is held: %+v", node)
		}
	}
}

func (c *copier) closeIt(h Handle) {
	mutation := c.mutation()
	report(c.t, errOf(ask(c, func(ctx context.Context) (any, error) { return nil, c.m.Files.Close(ctx, mutation, h) })), "close")
	c.leavesNothing(h.Node.Name, h.Owner, "a handle that was closed")
}

// Whatever the log refuses, and however many copies of a request arrive at any time: the clients' answers agree with
// the log, and when all have closed what they opened, nothing is left of it, and no request waits without end.
func TestCopiesAndRefusalsLeaveNothing(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { copiesAndRefusals(t, seed) })
	}
}

func copiesAndRefusals(t *testing.T, seed uint64) {
	inSolo(t, quota(t, api.Quota{Handles: 4, Waiters: 2}), func(t *testing.T, m *soloMaster) {
		ctx, cancel := context.WithCancel(t.Context())
		random := &chance{random: rand.New(rand.NewPCG(seed, 7))}
		log := &troubledLog{soloMaster: m, chance: random}
		m.proving.set(func() { random.upTo(time.Millisecond) })
		var working, others sync.WaitGroup
		var clients []*copier
		for i := range byte(5) {
			c := &copier{soloClient: m.client(t, i+1), chance: random, t: t, ctx: ctx, held: map[namespace.Owner]bool{}}
			clients = append(clients, c)
			others.Go(func() { c.keep(ctx) })
		}
		m.epoch.proposer.entries.log = log
		others.Go(func() { m.congest(ctx, random) })
		for _, c := range clients {
			working.Go(func() {
				for range 25 {
					h, ok := c.openAt(api.Name(fmt.Sprintf("/f%d", c.below(2))), c.percent(30))
					if !ok {
						continue
					}
					for range c.below(3) {
						c.lockOnce(h)
					}
					c.closeIt(h)
				}
				c.stray.Wait()
			})
		}
		working.Wait()
		time.Sleep(time.Second) // for what is retried with the clock
		cancel()
		others.Wait()
		synctest.Wait()
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		m.leftovers(t)
		lost := 0
		for _, c := range clients {
			lost += c.lost
		}
		if log.refused < 5 || lost < 10 {
			t.Errorf("%d entries were refused and %d answers lost: too few failures: the test proves nothing", log.refused, lost)
		}
	})
}

// leftovers reports what is left when every client has closed what it opened.
func (s *soloMaster) leftovers(t *testing.T) {
	t.Helper()
	for node := range s.epoch.state().Tree.All() {
		failIf(t, len(node.Holders) > 0 || node.Ephemeral, "left: %+v", node)
	}
	for id, own := range s.tables.Handles.Of {
		for _, one := range own.ByID {
			t.Errorf("left: handle %d of session %v: %+v", one.Owner.Handle, id, one)
		}
	}
	for name, line := range s.tables.Queues.ByName {
		for _, w := range line {
			t.Errorf("left: a waiter for %s: %+v", name, w)
		}
	}
	if len(s.tables.Handles.Used.Of) > 0 || len(s.tables.Handles.OnNode) > 0 || len(s.tables.Queues.Used.Of) > 0 || s.tables.Handles.Used.All != 0 || s.tables.Queues.Used.All != 0 {
		t.Errorf("left: used %v, on nodes %v, waiters %v", s.tables.Handles.Used, s.tables.Handles.OnNode, s.tables.Queues.Used)
	}
	failIf(t, len(s.tables.Handles.Refusing) > 0, "left: %d refusals on their way", len(s.tables.Handles.Refusing))
	recountMail(t, s.tables.Boxes)
}
