package master

import (
	"cmp"
	"context"
	flags "flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

var (
	crowds    = flags.Int("crowds", 0, "how many crowds of clients a master meets; 0 is 100, or 10,000 with -full")
	crowdSeed = flags.Uint64("crowd", 0, "the seed of the first crowd, which a failed test tells")
)

// A crowd of clients does random operations on a few nodes, while the log
// refuses entries, answers get lost and masters are replaced. Then the failures
// stop, and the test checks the promises: every request has been answered,
// every waiter that can have its lock has it, every holder knows of its lock,
// and caches agree with the state. When all sessions have ended, the master
// must remember nothing of them.
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
		synctest.Test(t, func(t *testing.T) { meetCrowd(t, seed) })
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
	orderly  bool          // it mostly waits for locks, and nothing fails: so a forgotten waiter is found
	crowded  bool          // all want the same node, which is often deleted, and the proposer is often congested
	restless bool          // its masters change often
	polite   bool          // its masters release the mutex wherever they may, as under load
	slow     time.Duration // after which clients that do not drop their cache are cut off; 0 if they are not
	mail     int           // bytes of events that may wait for one principal

	refusals atomic.Int32 // of 100 entries
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
