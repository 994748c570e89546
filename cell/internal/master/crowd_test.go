package master

import (
	"cmp"
	"context"
	flags "flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

var (
	crowds    = flags.Int("crowds", 0, "how many crowds of clients a master meets; 0 is 100, or 10,000 with -full")
	crowdSeed = flags.Uint64("crowd", 0, "the seed of the first crowd, which a failed test tells")
)

// A crowd of clients does anything at random with a few nodes, while the log
// refuses entries, answers get lost and masters are replaced. Then everything
// settles, and the promises are checked: every request has been answered, every waiter
// that can have its lock has it, every holder knows of its lock, caches show what is
// there; and when all sessions have ended, the master remembers nothing of them.
//
// To repeat a fault, use -crowds 1 -crowd <seed>. It is likely to appear again, but
// not certain to: goroutines may run in another order.
func TestCrowd(t *testing.T) {
	count := cmp.Or(*crowds, 100)
	if *full && *crowds == 0 {
		count = 10000
	}
	for i := range uint64(count) {
		seed := *crowdSeed + i
		synctest.Test(t, func(t *testing.T) { meetCrowd(t, seed) })
	}
}

// crowd is the clients, and the cell of one replica that they use.
type crowd struct {
	*chance
	t     *testing.T
	ctx   context.Context
	state atomic.Pointer[raftfsm.State]
	work  sync.WaitGroup // every goroutine of the clients

	names    []api.Name    // of the nodes that it uses
	orderly  bool          // it does little but wait for locks, and nothing fails: so nothing hides who was forgotten
	crowded  bool          // all want the same, which is often deleted, and the proposer is often congested
	restless bool          // it often has another master
	polite   bool          // its masters let others have the mutex wherever they may, as with much to do
	slow     time.Duration // after which clients are cut off that do not drop what they have cached; 0 if they are not
	mail     int           // bytes of events that may wait for one principal

	refusals atomic.Int32 // of 100 entries
	losses   atomic.Int32 // of 100 replies to KeepAlives

	mu      sync.Mutex // guards what follows, and all members
	reign   *crowdReign
	before  *crowdReign // that of the master before, which has not heard of it; nil if it has
	epoch   api.Epoch
	limits  limits
	members []*member
	nonces  int
	forced  map[api.Name]bool // locks that were taken from their holders at once
	history []string          // what happened, for a crowd that fails
}

// note adds a line to the history. w.mu is held.
func (w *crowd) note(format string, args ...any) {
	w.history = append(w.history, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// crowdReign is one master, and its log and fence.
type crowdReign struct {
	*Master
	w     *crowd
	end   context.CancelCauseFunc
	apply sync.Mutex // guards deposed
	// deposed has no more entries of this master written. Of the one that is on its
	// way the outcome is not known to it.
	deposed bool
}

// Append implements Log.
func (l *crowdReign) Append(data []byte) ([]raftfsm.Result, error) {
	l.w.upTo(3 * time.Millisecond)
	if l.w.percent(int(l.w.refusals.Load())) {
		return nil, notAppended
	}
	l.apply.Lock()
	defer l.apply.Unlock()
	if l.deposed {
		return nil, notAppended
	}
	results := l.w.write(data, uint64(l.epoch.number))
	if l.w.refusals.Load() > 0 && l.w.percent(1) {
		l.deposed = true // written, and its master does not hear of it
		return nil, errResultLost
	}
	return results, nil
}

func (w *crowd) write(data []byte, term uint64) []raftfsm.Result {
	e, err := raftfsm.DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	next := *w.state.Load()
	results := next.Apply(next.Applied+1, term, e)
	w.state.Store(&next)
	return results
}

// prove implements prover.
func (l *crowdReign) Close(error) {}

func (l *crowdReign) Prove(ctx context.Context) (session.Instant, error) {
	t0 := l.epoch.clock()
	l.w.upTo(time.Millisecond)
	l.apply.Lock()
	defer l.apply.Unlock()
	switch {
	case l.deposed:
		return 0, api.Errorf(api.NotMaster, "deposed")
	case ctx.Err() != nil:
		return 0, api.Errorf(api.Unavailable, "gave up")
	}
	return t0, nil
}

// elect begins another epoch on the state that the one that runs has left. Its master
// hears of that at once, or some time later: meanwhile it answers, as far as it can,
// who asked it before, and sees what its successor does.
func (w *crowd) elect() {
	var before *crowdReign
	if was := w.master(); was != nil {
		was.apply.Lock()
		was.deposed = true
		was.apply.Unlock()
		resign := func() {
			was.end(api.Errorf(api.NotMaster, "deposed"))
			was.Wait()
		}
		if w.percent(50) {
			resign()
		} else {
			before = was
			w.work.Go(func() {
				w.upTo(30 * time.Second)
				w.mu.Lock()
				if w.before == was {
					w.before = nil
				}
				w.mu.Unlock()
				resign()
			})
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
	for _, c := range w.members {
		c.loyal = w.percent(50)
	}
	w.epoch++
	next := *w.state.Load()
	next.Apply(next.Applied+1, uint64(w.epoch), raftfsm.Entry{Epoch: w.epoch, Commands: []raftfsm.Command{
		{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "c", Secret: make([]byte, 32), Level: raftfsm.MaxLevel}},
	}})
	w.state.Store(&next)
	ctx, end := context.WithCancelCause(w.ctx)
	l := &crowdReign{w: w, end: end}
	l.Master = New(ctx, Config{
		Epoch: w.epoch, Cell: "local", CellID: "c", State: w.state.Load, Log: l, Fence: l, Wall: func() int64 { return 0 },
		Clock:  func() session.Instant { return session.Instant(time.Now().UnixNano()) },
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), SlowClient: w.slow,
	})
	if w.polite {
		l.epoch.mu.maxStepsOverride = 1
		l.epoch.mu.held = func(time.Duration) {
			for range w.below(6) {
				runtime.Gosched()
			}
		}
	}
	l.Start()
	w.reign = l
	w.note("epoch %d", w.epoch)
	w.limit()
}

// limit sets the limits of the master that reigns. w.mu is held.
func (w *crowd) limit() {
	m := w.reign.Master
	m.epoch.mu.Lock()
	defer m.epoch.mu.Unlock()
	m.epoch.proposer.mu.Lock()
	defer m.epoch.proposer.mu.Unlock()
	m.epoch.proposer.limits, m.tables.queues.claims, m.tables.boxes.mail.limit = w.limits, w.limits.claims, w.mail
}

func (w *crowd) master() *crowdReign {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reign
}

// crowdNames are the nodes that a crowd uses.
var crowdNames = []api.Name{"/a", "/b", "/d", "/d/x"}

func meetCrowd(t *testing.T, seed uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	random := &chance{random: rand.New(rand.NewPCG(seed, 11))}
	w := &crowd{chance: random, t: t, ctx: ctx, forced: map[api.Name]bool{}, limits: tinyLimits(), mail: maxPrincipalMail}
	w.limits.claims = 100 + w.below(1000)
	w.limits.pending = 2000 + w.below(60000)
	w.polite = w.percent(50)
	if w.orderly = w.percent(60); w.orderly {
		w.names = crowdNames[:1+w.below(2)]
	} else {
		w.restrict()
	}
	state := raftfsm.NewState()
	w.state.Store(&state)
	w.elect()
	for range 2 + w.below(5) {
		w.join()
	}
	if steps := 50 + w.below(150); !w.orderly {
		w.trouble()
		w.live(steps)
	} else {
		w.live(steps / 2)
	}
	w.settle()
	w.leave()
	cancel()
	w.work.Wait()
	w.reign.Wait()
	if t.Failed() {
		t.Logf("what happened to the crowd of seed %d (repeat it with -crowds 1 -crowd %d):\n%s", seed, seed, strings.Join(w.history, "\n"))
	}
}

// restrict chooses what a crowd uses that is not orderly, and what it is allowed.
func (w *crowd) restrict() {
	w.names = crowdNames
	if w.crowded = w.percent(50); w.crowded {
		w.names = crowdNames[:1+w.below(2)]
	}
	w.restless = w.percent(30)
	if w.percent(40) {
		w.slow = time.Duration(1+w.below(4)) * 500 * time.Millisecond
	}
	if w.percent(40) {
		w.mail = 1000 + w.below(4000)
	}
}

// trouble has the log refuse entries, and replies be lost.
func (w *crowd) trouble() {
	w.refusals.Store(int32(w.below(15)))
	w.losses.Store(int32(w.below(40)))
}

// live does so many things.
func (w *crowd) live(steps int) {
	for range steps {
		w.step()
		if w.percent(25) {
			w.checkOffers()
		}
	}
}

// checkOffers checks that those who can have a lock are being offered it, or will be on
// the next tick, at any time: later something else may offer it to them.
func (w *crowd) checkOffers() {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reign.isDeposed() {
		return
	}
	m := w.reign.Master
	m.epoch.mu.Lock()
	defer m.epoch.mu.Unlock()
	tree := m.epoch.state().Tree
	for name, line := range m.tables.queues.byName {
		node, there := tree.Get(name)
		_, delayed := tree.Delay(name)
		if !there || delayed || node.Revoked != nil || m.tables.outbox.locks[name] || slices.ContainsFunc(line, m.tables.queues.onItsWay) {
			continue
		}
		if lead := m.tables.queues.leading(node.Ref(), node.Mode); len(lead) > 0 {
			w.t.Errorf("%+v waits for %s, and nobody will offer it: held by %v", lead[0], name, node.Holders)
		}
	}
}

// step does one thing.
func (w *crowd) step() {
	switch n := w.below(100); {
	case n < 5 && w.orderly:
	case n < 1, n < 4 && w.restless:
		w.elect()
	case n < 3, n < 5 && w.crowded:
		w.congest()
	case n < 5:
		time.Sleep(time.Duration(w.below(int(20 * time.Second))))
	case n < 30:
		w.upTo(100 * time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reign.isDeposed() {
		w.mu.Unlock()
		w.elect()
		w.mu.Lock()
	}
	w.members = slices.DeleteFunc(w.members, func(c *member) bool { return c.dead })
	if len(w.members) < 2 {
		w.mu.Unlock()
		w.join()
		w.mu.Lock()
	}
	if len(w.members) > 0 {
		w.members[w.below(len(w.members))].act()
	}
}

// onItsWay reports whether a command is on its way that may move a waiter.
func (q *queues) onItsWay(w *waiter) bool {
	return w.offered || w.refusal != nil || q.isClosing(w.owner())
}

func (l *crowdReign) isDeposed() bool {
	l.apply.Lock()
	defer l.apply.Unlock()
	return l.deposed
}

// congest has the proposer take nothing for a while, but what is the master's own.
func (w *crowd) congest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.limits
	w.limits.pending = w.below(300)
	w.note("congested: %d", w.limits.pending)
	w.limit()
	w.limits = was
	w.work.Go(func() {
		w.upTo(200 * time.Millisecond)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.limit()
	})
}

// settle lets everything settle, and checks that it does.
func (w *crowd) settle() {
	w.refusals.Store(0)
	w.losses.Store(0)
	if w.reign.isDeposed() {
		w.elect()
	}
	w.mu.Lock()
	for _, c := range w.members {
		c.silent = false
	}
	w.limits = defaultLimits()
	w.limits.claims = 1000
	w.limit()
	w.mu.Unlock()
	for range 12 { // leases, lock-delays, and places that are kept
		w.insist()
		time.Sleep(10 * time.Second)
	}
	synctest.Wait()
	w.checkPlaces()
	w.checkCaches()
	for range 100 {
		w.mu.Lock()
		left := 0
		for _, c := range w.members {
			c.letGo()
			if !c.dead {
				left += len(c.open)
			}
		}
		w.mu.Unlock()
		if left == 0 {
			break
		}
		w.insist()
		time.Sleep(5 * time.Second)
	}
	time.Sleep(time.Second)
	synctest.Wait()
	w.checkAnswers()
}

// insist has every client send again what is not answered yet, unless a copy waits.
func (w *crowd) insist() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.members {
		for _, r := range c.outstanding() {
			if r.copies == 0 && !r.abandoned && !c.dead {
				c.send(r, c.declaration(r.number))
			}
		}
	}
}

// checkPlaces checks that nobody waits who could have the lock.
func (w *crowd) checkPlaces() {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.reign.Master
	m.epoch.mu.Lock()
	defer m.epoch.mu.Unlock()
	tree := m.epoch.state().Tree
	for name, line := range m.tables.queues.byName {
		node, there := tree.Get(name)
		for _, w1 := range line {
			if !there || w1.lock != node.Ref() {
				w.t.Errorf("somebody waits for %v, which is gone: %+v", w1.lock, w1)
			}
			if w1.absent || m.tables.queues.isClosing(w1.owner()) || w1.offered {
				w.t.Errorf("absent %v, closing %v, offered %v, long after: %+v", w1.absent, m.tables.queues.isClosing(w1.owner()), w1.offered, w1)
			}
		}
		if !there {
			continue
		}
		if lead := m.tables.queues.leading(node.Ref(), node.Mode); len(lead) > 0 && node.Revoked == nil {
			d, delayed := tree.Delay(name)
			w.t.Errorf("%+v waits for %s, which nobody keeps from it: held by %v, delay %v %v", lead[0], name, node.Holders, d, delayed)
		}
	}
	for name, d := range tree.Delays() {
		w.t.Errorf("%s is still delayed: %v", name, d)
	}
}

// checkCaches checks that what clients have in their caches is what is there.
func (w *crowd) checkCaches() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.members {
		for name, have := range c.cache {
			if c.dead || c.changing[name] > 0 {
				continue
			}
			node, there := w.state.Load().Tree.Get(name)
			if !there || seenOf(node) != have {
				w.t.Errorf("session %v has %+v of %s in its cache; there is %+v", c.id, have, name, node)
			}
		}
	}
}

// checkAnswers checks that every call has returned, and that every holder of a lock
// knows that it holds it.
func (w *crowd) checkAnswers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.members {
		for _, r := range c.all {
			if r.copies > 0 || !r.done && !r.abandoned && !c.dead {
				w.t.Errorf("request %d of session %v, %s: done %v, %d copies have not returned", r.number, c.id, r.what, r.done, r.copies)
			}
		}
	}
	for node := range w.state.Load().Tree.Locked("") {
		for _, h := range node.Holders {
			w.t.Errorf("%v holds %s and does not know", h.Owner, node.Name)
		}
	}
}

// leave ends all sessions, and checks that the master remembers nothing of them.
func (w *crowd) leave() {
	w.mu.Lock()
	for _, c := range w.members {
		if w.percent(50) {
			c.endSession()
		} else {
			c.silent = true
		}
	}
	w.mu.Unlock()
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	m := w.reign.Master
	if n := m.epoch.state().Sessions.Len(); n > 0 {
		w.t.Errorf("%d sessions are left", n)
	}
	m.epoch.mu.Lock()
	defer m.epoch.mu.Unlock()
	for what, n := range m.remembered() {
		if n != 0 {
			w.t.Errorf("%s: %d are left", what, n)
		}
	}
	for node := range m.epoch.state().Tree.All() {
		if len(node.Holders) > 0 || len(node.Openers) > 0 || node.Ephemeral && node.Children == 0 {
			w.t.Errorf("left: %+v", node)
		}
	}
	if err := m.epoch.state().Check(); err != nil {
		w.t.Error(err)
	}
}

// remembered counts what a master remembers of sessions. epoch.mu is held.
func (m *Master) remembered() map[string]int {
	m.epoch.proposer.mu.Lock()
	defer m.epoch.proposer.mu.Unlock()
	pending, bytes, shares := len(m.epoch.proposer.pending), m.epoch.proposer.bytes, len(m.epoch.proposer.shares)
	r, c := m.remover, m.tables.copyset
	flush := 0
	if c.flush != nil {
		flush = len(c.flush.left)
	}
	return map[string]int{
		"leases": m.tables.leases.Len(), "mail": len(m.tables.boxes.mail.used), "mailboxes": len(m.tables.boxes.byID), "raising": len(m.Sessions.raising), "unended": len(m.tables.outbox.ends),
		"handles": len(m.tables.handles.of), "handles by node": len(m.tables.handles.onNode), "principals with handles": len(m.tables.handles.used),
		"queues": len(m.tables.queues.byName), "waiters": len(m.tables.queues.bySession), "absent waiters": len(m.tables.queues.absent), "settled waiters": len(m.tables.outbox.requests),
		"principals with waiters": len(m.tables.queues.used), "locks to be offered again": len(m.tables.outbox.locks), "closes on their way": len(m.tables.queues.closing),
		"lost locks": len(m.revocations.locks), "locks to be taken again": len(m.tables.outbox.evictions), "ending sessions": len(m.revocations.ends), "last leases": m.revocations.lastLeases.Len(),
		"delays": len(m.tables.delays.ids), "timed delays": m.tables.delays.ends.Len(),
		"copies": len(c.copies), "names in caches": len(c.names), "invalidations": len(c.told), "order of copies": len(c.order),
		"bytes of copies": len(c.bytes), "principals with copies": len(c.used), "names that change": len(c.changing), "clearings": len(c.clearings), "flush": flush,
		"dying nodes": len(r.dying), "removals": len(r.waiting), "removals to look at": len(r.again), "removals to be done": len(r.ready),
		"proposals": pending, "bytes of proposals": bytes, "shares of proposals": shares,
	}
}

// String is what the history tells of a request.
func (r *crowdRequest) String() string { return fmt.Sprintf("%d (%s by %d)", r.number, r.what, r.on) }
