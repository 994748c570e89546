package wire

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// Rates are how often in a second something may begin. 0 stands for as often as anybody likes.
type Rates struct {
	Calls                int // of one principal
	Sessions             int // that one principal opens, each of which is a command of the log
	CallsPerAddress      int
	HandshakesPerAddress int // with which a connection begins
}

// maxWaste is what the calls of one address that are for nothing may take in a second, in bytes, 200 short ones: those that their
// client resets, those that are refused because of their rate, and those that end before they are served, as requests that
// are too long do. What goes beyond has the connection that it came over read later.
const maxWaste = 200 * callWeight

// maxRest is how much later a connection is read at most, each time, and maxRested for how long in succession before
// it is closed: else what it has sent would be read for minutes after its client has gone. How often says little: a client
// that waits for its answers rests for milliseconds each time, and others may share its connection.
const (
	maxRest   = 2 * time.Second
	maxRested = 40 * time.Second
)

// burst is for how long nothing has to begin so that a whole second's worth may begin at once.
const burst = time.Second

// Of connections, whoever opens them: how many a second are accepted for each processor, and for how long they may come faster. The others
// wait in the system's queue. They would take the processors from calls otherwise, if they came from addresses enough.
const (
	acceptsPerProcessor = 500
	acceptBurst         = 20 * time.Millisecond
)

// bucket is a token bucket as one number, so that no mutex is needed: when it will be full again (the
// generic cell rate algorithm). Its zero value is full. It is safe for concurrent use.
type bucket struct {
	full atomic.Int64 // a session.Instant
}

// take takes a token, if there is one, of so many that come in a second.
func (b *bucket) take(now session.Instant, rate int) bool {
	if rate <= 0 {
		return true
	}
	_, ok := b.spend(now, 1, rate, burst)
	return ok
}

// spend takes n tokens, unless the bucket would need longer than most to be full again, and returns how long
// it needs.
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

// isFull reports whether nothing is remembered of what was taken.
func (b *bucket) isFull(now session.Instant) bool { return b.full.Load() <= int64(now) }

// caller is a principal that has connections.
type caller struct {
	name string
	open int // connections; Connections.mu guards it

	calls, returns, sessions bucket
}

// callsOf returns the bucket of calls, or of those that give something back.
func (p *caller) callsOf(back bool) *bucket {
	if back {
		return &p.returns
	}
	return &p.calls
}

// callsOf returns the bucket of calls, or of those that give something back.
func (o *source) callsOf(back bool) *bucket {
	if back {
		return &o.returns
	}
	return &o.calls
}

// rested implements restful.
func (p *caller) rested(now session.Instant) bool {
	return p.calls.isFull(now) && p.returns.isFull(now) && p.sessions.isFull(now)
}

// rested implements restful.
func (o *source) rested(now session.Instant) bool {
	return o.calls.isFull(now) && o.returns.isFull(now) && o.handshakes.isFull(now) && o.waste.isFull(now)
}

// maxFading bounds how many of those that have left are remembered.
const maxFading = 10_000

// restful is who has buckets.
type restful interface {
	rested(now session.Instant) bool
}

// fading is who has no connections left, and whose buckets are not full again: else it would be
// enough to connect anew. These are as soon forgotten as they are full, within three seconds. Its zero value is ready.
type fading[T restful] struct {
	byName map[string]T
	order  []string // in which they left; some may be back
}

// put remembers somebody who leaves, unless nothing has to be remembered.
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

// find returns somebody who has left, if anything is remembered of him.
func (f *fading[T]) find(name string, now session.Instant) (T, bool) {
	f.prune(now)
	one, ok := f.byName[name]
	return one, ok
}

// drop is called when somebody is back.
func (f *fading[T]) drop(name string) { delete(f.byName, name) }

// prune forgets who has rested, and the first ones if there are too many.
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

// smooth waits as long as it takes until the next connection is due. It is called for each that was accepted, by one
// goroutine.
func (c *Connections) smooth(now session.Instant) {
	refill, _ := c.accepts.spend(now, 1, acceptsPerProcessor*runtime.GOMAXPROCS(0), time.Hour)
	if refill > acceptBurst {
		<-time.After(refill - acceptBurst) // which is a token
	}
}

// knows has the calls of a connection counted as those of a principal.
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

// parts is called when a connection is closed. c.mu is held.
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

// pace returns why a call is not served: others of its principal, or its address, came too fast. What arrived last over
// the connection says what time it is.
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

// wasted takes note of a call that was for nothing. If those of one address take very much, the
// connection over which they come is read so much later that its address has maxWaste a second. of.mu is held.
func (c *call) wasted() {
	a := c.of
	if refill, _ := a.origin.waste.spend(a.conn.LastArrival(), c.request, maxWaste, burst+maxRest); refill > burst {
		a.conn.rest.Store(int64(min(refill-burst, maxRest)))
	}
}

// pause waits before more is read from a connection, if it has wasted much. Only its reader calls it.
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
