package wire

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// Rates are how many may begin in a second. 0 means no limit.
type Rates struct {
	Calls                int // of one principal
	Sessions             int // that one principal opens; each is a command of the log
	CallsPerAddress      int
	HandshakesPerAddress int // each connection begins with one
}

// maxWaste is how many bytes the useless calls of one address may take in a second, as 200 short ones do: calls
// that the client resets, that exceed a rate, or that end before they are served. Beyond it, their connection
// is read later.
const maxWaste = 200 * callWeight

// maxRest is the longest delay of a read, and maxRested the longest succession of delays before the connection
// is closed: else its data would be read for minutes after the client has gone. A count of delays says little:
// a client that waits for its answers is delayed for milliseconds, and others may share its connection.
const (
	maxRest   = 2 * time.Second
	maxRested = 40 * time.Second
)

// burst is the idle time after which a whole second's worth may begin at once.
const burst = time.Second

// Limits of accepted connections: a second for each processor, and how long they may come faster. The others
// wait in the system's queue; else many addresses could take the processors from calls.
const (
	acceptsPerProcessor = 500
	acceptBurst         = 20 * time.Millisecond
)

// bucket is a token bucket as one number, without a mutex: the time when it is full again (the generic cell
// rate algorithm). Its zero value is full. It is safe for concurrent use.
type bucket struct {
	full atomic.Int64 // a session.Instant
}

// take takes a token, if there is one. rate is how many come in a second.
func (b *bucket) take(now session.Instant, rate int) bool {
	if rate <= 0 {
		return true
	}
	_, ok := b.spend(now, 1, rate, burst)
	return ok
}

// spend takes n tokens, unless refilling the bucket would then take longer than most. It returns the refill time.
func (b *bucket) spend(now session.Instant, n int64, rate int, most time.Duration) (refill time.Duration, ok bool) {
	for {
		full := b.full.Load()
		next := max(full, int64(now)) + n*int64(time.Second)/int64(rate)
		if refill := time.Duration(next - int64(now)); refill > most {
			return refill, false
		}
		if b.full.CompareAndSwap(full, next) {
			return time.Duration(next - int64(now)), true
		}
	}
}

func (b *bucket) isFull(now session.Instant) bool { return b.full.Load() <= int64(now) }

type caller struct {
	name string
	open int // connections; Connections.mu guards it

	calls, returns, sessions bucket
}

// callsOf returns the bucket of calls, or of releases.
func (p *caller) callsOf(back bool) *bucket {
	if back {
		return &p.returns
	}
	return &p.calls
}

// callsOf returns the bucket of calls, or of releases.
func (o *source) callsOf(back bool) *bucket {
	if back {
		return &o.returns
	}
	return &o.calls
}

func (p *caller) rested(now session.Instant) bool {
	return p.calls.isFull(now) && p.returns.isFull(now) && p.sessions.isFull(now)
}

func (o *source) rested(now session.Instant) bool {
	return o.calls.isFull(now) && o.returns.isFull(now) && o.handshakes.isFull(now) && o.waste.isFull(now)
}

// maxFading limits how many former callers or sources are remembered.
const maxFading = 10_000

// restful has buckets.
type restful interface {
	rested(now session.Instant) bool
}

// fading remembers callers or sources without connections until their buckets are full, at most three seconds;
// else a client could escape a rate by reconnecting. Its zero value is ready.
type fading[T restful] struct {
	byName map[string]T
	order  []string // in which they left; some may have returned
}

// put remembers one that leaves, unless its buckets are full.
func (f *fading[T]) put(name string, one T, now session.Instant) {
	f.prune(now)
	if one.rested(now) {
		return
	}
	if f.byName == nil {
		f.byName = map[string]T{}
	}
	f.byName[name] = one
	f.order = append(f.order, name)
}

func (f *fading[T]) find(name string, now session.Instant) (T, bool) {
	f.prune(now)
	one, ok := f.byName[name]
	return one, ok
}

func (f *fading[T]) drop(name string) { delete(f.byName, name) }

// prune forgets those with full buckets, and the oldest above maxFading.
func (f *fading[T]) prune(now session.Instant) {
	for len(f.order) > 0 {
		one, there := f.byName[f.order[0]]
		if there && !one.rested(now) && len(f.order) < maxFading {
			return
		}
		delete(f.byName, f.order[0])
		f.order = f.order[1:]
	}
	f.order = nil // the array, too
}

// smooth waits until the next connection is due. The accepting goroutine calls it for each connection.
func (c *Connections) smooth(now session.Instant) {
	refill, _ := c.accepts.spend(now, 1, acceptsPerProcessor*runtime.GOMAXPROCS(0), time.Hour)
	if refill > acceptBurst {
		<-time.After(refill - acceptBurst) // one token
	}
}

// knows counts the calls of a connection as those of a principal.
func (c *Connections) knows(conn *heardConn, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.refusal != nil || conn.closed.Load() || conn.caller.Load() != nil {
		return
	}
	p := c.callers[name]
	if p == nil {
		var back bool
		if p, back = c.callersFade.find(name, conn.clock()); !back {
			p = &caller{name: name}
		}
		c.callersFade.drop(name)
		c.callers[name] = p
	}
	p.open++
	conn.caller.Store(p)
}

// parts counts a closed connection. c.mu is held.
func (c *Connections) parts(conn *heardConn) {
	p := conn.caller.Load()
	if p == nil {
		return
	}
	if p.open--; p.open == 0 {
		delete(c.callers, p.name)
		c.callersFade.put(p.name, p, conn.clock())
	}
}

// pace returns an error if calls of the same principal or address come too fast. The last arrival is its clock.
func (a *account) pace(method string, size requestSize) *api.Error {
	if isEndless(method) && size.bytes <= maxVital {
		return nil
	}
	c, now := a.all, a.conn.LastArrival()
	var err *api.Error
	const advice = "; try again later, have programs call less often, or raise the limit"
	opens, back, what := method == pb.Chubby_CreateSession_FullMethodName, givesBack(method), "makes"
	if back {
		what = "gives something back by"
	}
	switch p := a.conn.caller.Load(); {
	case p != nil && !p.callsOf(back).take(now, c.bounds.Rates.Calls):
		err = api.Errorf(api.Unavailable, "%q %s more than %d calls a second (max-calls-per-principal)"+advice, p.name, what, c.bounds.Rates.Calls)
	case p != nil && opens && !p.sessions.take(now, c.bounds.Rates.Sessions):
		err = api.Errorf(api.Unavailable, "%q opens more than %d sessions a second (max-new-sessions-per-principal)"+advice, p.name, c.bounds.Rates.Sessions)
	case !a.origin.callsOf(back).take(now, c.bounds.Rates.CallsPerAddress):
		err = api.Errorf(api.Unavailable, "more than %d calls a second come from %s (max-calls-per-address)"+advice, c.bounds.Rates.CallsPerAddress, a.origin.name)
	default:
		return nil
	}
	c.told.Late()
	if n, ok := c.saidLate.Next(); ok {
		c.log.Warn("refused a client's call", "event", "call_shed", "from", a.origin.name, "error", err, "count", n)
	}
	return err
}

// wasted counts a useless call. Beyond maxWaste a second from one address, it delays the next read from the
// connection. of.mu is held.
func (c *call) wasted() {
	a := c.of
	if refill, _ := a.origin.waste.spend(a.conn.LastArrival(), c.request, maxWaste, burst+maxRest); refill > burst {
		a.conn.rest.Store(int64(min(refill-burst, maxRest)))
	}
}

// pause delays the next read from a connection that has wasted much. Only the connection's reader calls it.
func (c *heardConn) pause() {
	if c.rest.Load() == 0 {
		c.rested = 0
		return
	}
	if c.rested >= maxRested {
		all := c.account.all
		if all.told.Shed(); c.refusal == nil {
			if n, ok := all.saidShed.Next(); ok {
				all.log.Warn("closed a client's connection: too many of its calls were for nothing", "event", "connection_closed", "from", c.Conn.RemoteAddr(), "count", n)
			}
		}
		_ = c.Close() // its server notices
		return
	}
	rest := time.Duration(c.rest.Swap(0))
	//mutant: c.rested += maxRest
	c.rested += rest
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
	//mutant: /* nothing */
	case <-c.gone:
	}
}
