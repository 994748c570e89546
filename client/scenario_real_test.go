//go:build linux

package client_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

var (
	scenarioTime = flag.Duration("scenario", 30*time.Second, "how long, in virtual time, TestScenario makes trouble")
	scenarioFive = flag.Bool("five", false, "give TestScenario a cell of five replicas, and not of three")
)

const workers = 4 // hosts that do something

// scenario is clients that do at random what a client can do, with contexts that
// end at any moment, while their answers, their masters and their sessions are lost.
type scenario struct {
	*histories
	cell  *celltest.Cell
	ctx   context.Context
	calm  chan struct{} // closed when there is no more trouble
	admin *client.Client

	mu     sync.Mutex // guards what follows
	serial int
	open   map[string]*client.Client // the session of a host
}

func paths(kind string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("/ls/local/dir/%s%d", kind, i))
	}
	return list
}

var (
	registers = paths("r", 3) // files that stay
	fleeting  = paths("t", 3) // files that come and go
	brief     = paths("e", 3) // files that go with those who have them open
	lockFiles = paths("l", 2)
	keptLocks = paths("k", 3) // whose locks stay with those who have had them
)

// TestScenario checks what a client promises whatever happens: no two hold a lock, what is read is what
// was written, and newer than what was read before; what was refused is not done, and what may have been
// done is not done later than the next that the same one does; and nothing is left at the cell of those who
// have gone. (That events lead to what is there, TestTreeRandom of package recipe checks.)
func TestScenario(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := bounded(t, *scenarioTime+2*time.Hour)
		replicas := 3
		if *scenarioFive {
			replicas = 5
		}
		s := &scenario{
			histories: newHistories(t), cell: celltest.Start(t, replicas), ctx: ctx, calm: make(chan struct{}),
			open: map[string]*client.Client{},
		}
		s.prepare()
		var working sync.WaitGroup
		for i := range workers {
			host := fmt.Sprintf("worker%d", i)
			working.Go(func() { s.live(host, i%2 == 0) })
		}
		s.rage()
		working.Wait()
		pass(3 * time.Minute)
		synctest.Wait()
		s.checkLeftovers()
		for _, c := range s.sessions() {
			if err := c.Close(s.ctx); err != nil {
				s.fault("Close when all is calm: %v", err)
			}
		}
		pass(2 * time.Minute)
		s.checkNothing()
		s.check()
		noError(t, s.admin.Close(ctx))
	})
}

func pass(d time.Duration) { <-time.After(d) }

// sessions returns those that are open, or were.
func (s *scenario) sessions() []*client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.open))
}

// prepare makes what is to be there, as an operator who is spared all trouble.
func (s *scenario) prepare() {
	c := ok(client.New(s.ctx, client.Config{Servers: s.cell.Servers(), Dialer: s.cell.Dial, Clock: celltest.Clock, As: "admin", NoCache: true}))(s.t)
	s.admin = c
	create := func(path string, create client.Creation) {
		h, err := c.Open(s.ctx, path, client.OpenOptions{Write: true, Create: create})
		if err == nil {
			err = h.Close(s.ctx)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	create("/ls/local/dir", client.Directory)
	for _, list := range [][]string{registers, lockFiles, keptLocks} {
		for _, path := range list {
			create(path, client.File)
		}
	}
}

func (s *scenario) over() bool {
	select {
	case <-s.calm:
		return true
	default:
		return false
	}
}

func (s *scenario) config(host string, plain bool) client.Config {
	cfg := client.Config{Servers: s.cell.Servers(), Dialer: s.cell.DialFrom(host), Clock: s.cell.ClockOf(host), As: host, NoCache: plain}
	if plain {
		cfg.Dialer = s.cell.Lossy(host, func(string) bool { return !s.over() && rand.IntN(30) == 0 })
	}
	cfg.OnState = func(client.StateChange) { pass(rand.N(time.Second)) }
	return cfg
}

// live is the life of a worker: one session after another, the last of which stays.
func (s *scenario) live(host string, plain bool) {
	for {
		c, err := client.New(s.ctx, s.config(host, plain))
		if err != nil {
			s.fault("%s: no session: %v", host, err)
			return
		}
		s.mu.Lock()
		s.open[host] = c
		s.mu.Unlock()
		life, cancel := context.WithTimeout(s.ctx, 5*time.Second+rand.N(2*time.Minute))
		var actors sync.WaitGroup
		for range 4 {
			actors.Go(func() {
				a := &actor{scenario: s, host: host, client: c}
				for life.Err() == nil && c.Err() == nil && !s.over() {
					a.act()
					pass(rand.N(300 * time.Millisecond))
				}
			})
		}
		if rand.IntN(2) == 0 { // close beside everything
			select {
			case <-life.Done():
			case <-c.Done():
			case <-s.calm:
			}
			if !s.over() {
				closeSoon(s.ctx, c)
			}
		}
		actors.Wait()
		cancel()
		if s.over() && c.Err() == nil {
			return
		}
		closeSoon(s.ctx, c)
	}
}

// closeSoon closes with a context that ends at any time.
func closeSoon(ctx context.Context, c *client.Client) {
	ctx, cancel := soon(ctx)
	defer cancel()
	_ = c.Close(ctx) // the session ends by itself
}

// soon returns a context that has ended, or ends at some time, or too late for anybody.
func soon(ctx context.Context) (context.Context, context.CancelFunc) {
	var after time.Duration
	switch rand.IntN(6) {
	case 0:
	case 1, 2:
		after = rand.N(20 * time.Millisecond)
	case 3:
		after = rand.N(10 * time.Second)
	default:
		after, ctx = tooLong, context.WithValue(ctx, longKey{}, true)
	}
	ctx = context.WithValue(ctx, endKey{}, time.Now().Add(after))
	if rand.IntN(2) == 0 {
		return context.WithTimeout(ctx, after)
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(after, cancel)
	if after == 0 {
		cancel()
	}
	return ctx, func() { timer.Stop(); cancel() }
}

// endKey is that of the time at which a context of soon ends.
type endKey struct{}

// longKey marks one that ends too late for anybody.
type longKey struct{}

// tooLong is longer than any trouble lasts, with all that follows from it.
const tooLong = 20 * time.Minute

// rage makes trouble.
func (s *scenario) rage() {
	hosts := []string{}
	for i := range workers {
		hosts = append(hosts, fmt.Sprintf("worker%d", i))
	}
	for _, host := range hosts {
		s.cell.Slow(host, rand.N(8*time.Millisecond))
	}
	for began := time.Now(); time.Since(began) < *scenarioTime; {
		pass(rand.N(6 * time.Second))
		s.trouble(hosts[rand.IntN(len(hosts))])
	}
	s.cell.Heal(hosts...)
	close(s.calm)
}

func (s *scenario) trouble(host string) {
	switch n := rand.IntN(12); n {
	case 0:
		s.cell.Restart(s.cell.FailOver())
	case 1:
		s.cell.Transfer()
	case 2, 3:
		s.cell.Cut(host)
		pass(rand.N(40 * time.Second))
		s.cell.Heal(host)
	case 4:
		s.cell.Reset(host)
		pass(rand.N(5 * time.Second))
		s.cell.Heal(host)
	case 5, 6:
		s.halt(host, true)
		s.cell.Pause(host)
		pass(rand.N(40 * time.Second))
		s.cell.Resume(host)
		pass(300 * time.Millisecond) // timers notice
		s.halt(host, false)
	case 7:
		id := s.cell.Master()
		s.cell.Isolate(id)
		pass(rand.N(10 * time.Second))
		s.cell.Rejoin(id)
	case 8:
		id := s.cell.Master()
		s.cell.Pause(id)
		pass(rand.N(10 * time.Second))
		s.cell.Resume(id)
	case 9:
		_ = s.admin.BreakLock(s.ctx, pick(pick(lockFiles...), pick(keptLocks...)), "a drill", false) // it may be free
	case 10:
		s.mu.Lock()
		c := s.open[host]
		s.mu.Unlock()
		if c != nil {
			_ = s.admin.EndSession(s.ctx, c.Session(), "a drill") // it may be gone
		}
	case 11:
		s.cell.Slow(host, rand.N(500*time.Millisecond))
	}
}

// checkLeftovers checks, while the workers' last sessions are open, that they have closed, released and
// withdrawn all that their programs have.
func (s *scenario) checkLeftovers() {
	locks, err := s.admin.Cell().Locks(s.ctx, "")
	if err != nil {
		s.fault("%v", err)
	}
	for _, l := range locks {
		s.fault("a lock is left: %+v", l)
	}
	quotas, err := s.admin.Cell().Quotas(s.ctx)
	if err != nil {
		s.fault("%v", err)
	}
	for _, q := range quotas {
		for i := range workers {
			spare := 0
			if i%2 != 0 {
				spare = 64 // that a client that caches may keep
			}
			if q.Principal == fmt.Sprintf("worker%d", i) && (q.Used.Handles > spare || q.Used.Waiters > 0) {
				s.fault("%s uses %+v", q.Principal, q.Used)
			}
		}
	}
}

// checkNothing checks that all sessions have gone, with their files.
func (s *scenario) checkNothing() {
	quotas, err := s.admin.Cell().Quotas(s.ctx)
	if err != nil {
		s.fault("%v", err)
	}
	for _, q := range quotas {
		if q.Principal != "admin" && (q.Used.Sessions > 0 || q.Used.Handles > 0 || q.Used.Waiters > 0) {
			s.fault("%s is gone, and uses %+v", q.Principal, q.Used)
		}
	}
	for _, path := range brief {
		h, err := s.admin.Open(s.ctx, path, client.OpenOptions{Read: true})
		if !errors.Is(err, api.NotFound) {
			s.fault("%s is left: %v, %v", path, h, err)
		}
	}
}
