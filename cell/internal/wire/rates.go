package wire

import (
	"cmp"
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

// take takes a token, if there is one. rate is how many come in a second; more lets that many be missing.
func (b *bucket) take(now session.Instant, rate int, more time.Duration) bool {
	if rate <= 0 {
		return true
	}
	_, ok := b.spend(now, 1, rate, burst+more)
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

// party is whose connections count together: a principal, or an origin of connections (see origin.Of).
type party struct {
	name         string
	calls, opens bucket // opens: of sessions by a principal, of connections by an origin

	// Origins alone have these.
	waste  bucket
	bytes  atomic.Int64 // held for its calls
	ending atomic.Int64 // of these, by closed connections
	silent atomic.Int64 // connections over which nothing has arrived

	// Connections.mu guards these.
	open     int                   // connections
	accounts map[*account]struct{} // of open connections, and of refused ones that are kept
}

func newParty(name string) *party { return &party{name: name, accounts: map[*account]struct{}{}} }

func (p *party) rested(now session.Instant) bool {
	return p.calls.isFull(now) && p.opens.isFull(now) && p.waste.isFull(now)
}

// parties are those with connections, and for at most three seconds those who have left, until their buckets are
// full: else a party could escape a rate by reconnecting. Connections.mu guards them.
type parties struct {
	here, gone map[string]*party
	order      []string // in which they left; some may have returned
}

func newParties() parties { return parties{here: map[string]*party{}, gone: map[string]*party{}} }

// maxGone limits how many are remembered that have left.
const maxGone = 10_000

// find returns a party, which may be new.
func (s *parties) find(name string, now session.Instant) *party {
	s.prune(now)
	if p := cmp.Or(s.here[name], s.gone[name]); p != nil {
		return p
	}
	return newParty(name)
}

func (s *parties) enter(p *party) {
	delete(s.gone, p.name)
	s.here[p.name] = p
}

func (s *parties) leave(p *party, now session.Instant) {
	delete(s.here, p.name)
	s.prune(now)
	if !p.rested(now) {
		s.gone[p.name] = p
		s.order = append(s.order, p.name)
	}
}

// prune forgets those with full buckets, and the first above maxGone.
func (s *parties) prune(now session.Instant) {
	for len(s.order) > 0 {
		p := s.gone[s.order[0]]
		if p != nil && !p.rested(now) && len(s.order) < maxGone {
			return
		}
		delete(s.gone, s.order[0])
		s.order = s.order[1:]
	}
	s.order = nil // the array, too
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
	p := c.callers.find(name, conn.clock())
	c.callers.enter(p)
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
		c.callers.leave(p, conn.clock())
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
	opens, more := method == pb.Chubby_CreateSession_FullMethodName, time.Duration(0)
	if givesBack(method) {
		more = burst // it is served after calls are refused
	}
	switch p := a.conn.caller.Load(); {
	case p != nil && !p.calls.take(now, c.bounds.Rates.Calls, more):
		err = api.Errorf(api.Unavailable, "%q makes more than %d calls a second (max-calls-per-principal)"+advice, p.name, c.bounds.Rates.Calls)
	case p != nil && opens && !p.opens.take(now, c.bounds.Rates.Sessions, 0):
		err = api.Errorf(api.Unavailable, "%q opens more than %d sessions a second (max-new-sessions-per-principal)"+advice, p.name, c.bounds.Rates.Sessions)
	case !a.origin.calls.take(now, c.bounds.Rates.CallsPerAddress, more):
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
				from, _ := c.from()
				all.log.Warn("closed a client's connection: too many of its calls were for nothing", "event", "connection_closed", "from", from, "count", n)
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
