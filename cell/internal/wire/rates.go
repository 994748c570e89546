package wire

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/session"
)

// Rates are how many may begin in a second. 0 means no limit.
type Rates struct {
	Calls                int // of one principal
	Sessions             int // that one principal opens; each is a command of the log
	CallsPerAddress      int
	HandshakesPerAddress int // each connection begins with one
}

// burst is the idle time after which a whole second's worth may begin at once.
const burst = time.Second

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

// heldLimits are the limits of memory held for clients' calls, in bytes: of one connection, one address, and
// all. Above a limit, complete calls and long replies are refused with a reason. At twice the limit, the
// heaviest connection is closed: only incomplete requests and unanswerable frames reach that.
//
// 1 GiB is 130,000 parked calls, or 4,000 whole files under way. A client has a parked KeepAlive for each
// session, and a call for each lock that it waits for.
type heldLimits struct{ conn, address, all int64 }

// limitsOf gives an address a quarter of the total, and a connection a quarter of that.
func limitsOf(all int64) heldLimits { return heldLimits{conn: all / 16, address: all / 4, all: all} }

// overflow is the multiple of a memory limit at which connections are closed.
const overflow = 2
