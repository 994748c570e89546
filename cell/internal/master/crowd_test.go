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

// A crowd of clients does random operations on a few nodes, while the log refuses entries, answers get lost and masters
// are replaced. Then the failures stop, and the test checks the promises: every request has been answered, every waiter
// that can have its lock has it, every holder knows of its lock, and caches agree with the state. When all sessions
// have ended, the master must remember nothing of them.
//
// To repeat a failure, use -crowds 1 -crowd <seed>. It is likely to appear
// again, but not certain: goroutines may run in another order.
func TestCrowd(t *testing.T) {
	count := cmp.Or(*crowds, 100)
	if *full && *crowds == 0 {
		count = 10000
	}
	for i := range uint64(count) {
		seed := *crowdSeed + i
		synctest.Test(t, func(t *testing.T) { meetCrowd(t, seed, false) })
	}
}

// Whatever the log refuses, and however many copies of a request arrive at any time: all copies of an Open are answered in one way,
// a refused one has left nothing, and when all have closed what they opened, nothing is left of it.
func TestCopiesAndRefusalsLeaveNothing(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) { meetCrowd(t, seed, true) })
	}
}

// crowd has the clients, and the cell of one replica that they use.
type crowd struct {
	*chance
	t     *testing.T
	ctx   context.Context
	state atomic.Pointer[raftfsm.State]
	work  sync.WaitGroup // every goroutine of the clients

	names    []api.Name    // of the nodes that it uses
	tidy     bool          // like orderly, but the log refuses entries; its master stays, and its clients close what they open
	orderly  bool          // it mostly waits for locks, and nothing fails: so a forgotten waiter is found
	crowded  bool          // all want the same node, which is often deleted, and the proposer is often congested
	restless bool          // its masters change often
	polite   bool          // its masters release the mutex wherever they may, as under load
	slow     time.Duration // after which clients that do not drop their cache are cut off; 0 if they are not
	mail     int           // bytes of events that may wait for one principal

	refusals atomic.Int32 // of 100 entries
	refused  atomic.Int32 // entries
	losses   atomic.Int32 // of 100 replies to KeepAlives

	mu      sync.Mutex // guards what follows, and all members
	current *crowdEpoch
	before  *crowdEpoch // that of the master before, which has not heard of it; nil if it has
	epoch   api.Epoch
	limits  limits
	members []*member
	nonces  int
	forced  map[api.Name]bool // locks that were taken from their holders at once
	history []string          // what happened, for the report of a failure
}

// note adds a line to the history. The caller holds w.mu.
func (w *crowd) note(format string, args ...any) {
	w.history = append(w.history, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// crowdNames are the nodes that a crowd uses.
var crowdNames = []api.Name{"/a", "/b", "/d", "/d/x"}

func meetCrowd(t *testing.T, seed uint64, tidy bool) {
	ctx, cancel := context.WithCancel(t.Context())
	random := &chance{random: rand.New(rand.NewPCG(seed, 11))}
	w := &crowd{chance: random, t: t, ctx: ctx, forced: map[api.Name]bool{}, limits: tinyLimits(), mail: 256 << 20}
	w.limits.claims = 100 + w.below(1000)
	w.limits.pending = 2000 + w.below(60000)
	w.polite = w.percent(50)
	w.tidy = tidy
	if w.orderly = w.percent(60) || tidy; w.orderly {
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
	if steps := 50 + w.below(150); tidy {
		w.refusals.Store(10)
		w.losses.Store(10)
		w.live(300)
		failIf(t, w.refused.Load() < 5, "%d entries were refused: the test proves nothing", w.refused.Load())
	} else if !w.orderly {
		w.trouble()
		w.live(steps)
	} else {
		w.live(steps / 2)
	}
	w.settle()
	if tidy {
		w.tidyUp()
	}
	w.leave()
	cancel()
	w.work.Wait()
	w.current.Wait()
	if t.Failed() {
		t.Logf("what happened to the crowd of seed %d (repeat it with -crowds 1 -crowd %d):\n%s", seed, seed, strings.Join(w.history, "\n"))
	}
}

// restrict chooses the nodes and the limits of a crowd that is not orderly.
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

// trouble makes the log refuse entries, and replies get lost.
func (w *crowd) trouble() {
	w.refusals.Store(int32(w.below(15)))
	w.losses.Store(int32(w.below(40)))
}

// live does that many steps.
func (w *crowd) live(steps int) {
	for range steps {
		w.step()
		if w.percent(25) {
			w.checkOffers()
		}
	}
}

// step does one random operation.
func (w *crowd) step() {
	switch n := w.below(100); {
	case n < 5 && w.tidy:
		w.congest()
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
	if w.current.isDeposed() {
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

// String describes a request in the history.
func (r *crowdRequest) String() string { return fmt.Sprintf("%d (%s by %d)", r.number, r.what, r.on) }

// crowdEpoch is one master, and its log and fence.
type crowdEpoch struct {
	*Master
	w     *crowd
	end   context.CancelCauseFunc
	apply sync.Mutex // guards deposed
	// A deposed master's entries are no longer written. It does not learn the result of the one that was on its way.
	deposed bool
}

// Append implements Log.
func (l *crowdEpoch) Append(data []byte) ([]raftfsm.Result, error) {
	l.w.upTo(3 * time.Millisecond)
	if l.w.percent(int(l.w.refusals.Load())) {
		l.w.refused.Add(1)
		return nil, notAppended
	}
	defer l.w.checkUsable() // before the master learns of it
	l.apply.Lock()
	defer l.apply.Unlock()
	if l.deposed {
		return nil, notAppended
	}
	results := l.w.write(data, uint64(l.epoch.number))
	if l.w.refusals.Load() > 0 && !l.w.tidy && l.w.percent(1) {
		l.deposed = true // written, but its master does not learn of it
		return nil, errResultLost
	}
	return results, nil
}

// Close implements Log.
func (l *crowdEpoch) Close(error) {}

func (l *crowdEpoch) Prove(ctx context.Context) (session.Instant, error) {
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

func (l *crowdEpoch) Then(then func(session.Instant, error)) {
	go func() { then(l.Prove(context.Background())) }()
}

func (l *crowdEpoch) isDeposed() bool {
	l.apply.Lock()
	defer l.apply.Unlock()
	return l.deposed
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

// elect begins another epoch on the state that the present one has left. The old master learns of it at once, or some
// time later: meanwhile it answers its callers as far as it can, and sees what its successor does.
func (w *crowd) elect() {
	var before *crowdEpoch
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
	l := &crowdEpoch{w: w, end: end}
	l.Master = New(ctx, Config{
		Epoch: w.epoch, Cell: "local", State: w.state.Load, Log: l, Fence: l, Wall: func() int64 { return 0 },
		Clock:  func() session.Instant { return session.Instant(time.Now().UnixNano()) },
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Metrics: uncounted{}, SlowClient: w.slow,
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
	w.current = l
	w.note("epoch %d", w.epoch)
	w.limit()
}

// limit sets the limits of the current master. w.mu is held.
func (w *crowd) limit() {
	m := w.current.Master
	m.epoch.mu.Lock()
	defer m.epoch.mu.Unlock()
	m.epoch.proposer.mu.Lock()
	defer m.epoch.proposer.mu.Unlock()
	m.epoch.proposer.limits, m.tables.Queues.Claims, m.tables.Boxes.Limit = w.limits, w.limits.claims, w.mail
}

func (w *crowd) master() *crowdEpoch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

// congest makes the proposer accept nothing but the master's own commands for a while.
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

// notAppended is the error of an entry that was refused before it was written.
var notAppended = api.Errorf(api.NotMaster, "refused before it was written")
