package master

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// member is one client of a crowd. It follows the protocol: it sends a request until it has a final answer, under the
// same number, and declares which answers it still wants; it drops what it is told to, and uses a lock only while its
// lease runs. Everything else is random. crowd.mu guards it.
type member struct {
	w      *crowd
	id     api.SessionID
	dead   bool
	silent bool // it sends no KeepAlives
	ended  bool // it knows that its session is being ended, and uses nothing of it
	loyal  bool // it stays with a deposed master until that master refuses it

	number api.RequestNumber
	all    []*crowdRequest
	open   map[api.RequestNumber]*crowdRequest // whose answers it wants

	epoch           api.Epoch // the newest that it knows
	received, acked uint64
	grant           uint64
	lease           time.Time // the end of the lease by its own count
	worksOn         time.Time // until then it does not acknowledge that it lost a lock

	handles  []Handle // open ones
	holds    map[api.HandleID]held
	lost     map[api.HandleID]api.Generation
	vacated  map[[2]uint64]bool    // by handle and token: locks of which it got an event that they are vacant
	tainted  map[api.HandleID]bool // handles of which it does not know whether they hold locks
	leased   bool                  // it uses its cache only under cache leases
	cached   time.Time             // the end of the cache lease by its own count
	cache    map[api.Name]seen
	dropped  map[api.Name]int // how often it was told to drop a name
	flushed  int              // how often it was told to drop all
	changing map[api.Name]int // its own changes that are not answered yet
}

// held is a lock that a client relies on.
type held struct {
	lock       namespace.Ref
	mode       api.LockMode
	generation api.Generation
	h          Handle
	leaving    uint64 // of the revocation, which it has not acknowledged yet
}

// seen is a client's cached copy of a node.
type seen struct {
	instance, content, acls api.Generation
	children                int
}

func seenOf(n *namespace.Node) seen {
	return seen{instance: n.Instance, content: n.Content, acls: n.ACLs, children: n.Children}
}

// crowdRequest is a numbered request. do sends it once; concluded handles its answer.
type crowdRequest struct {
	number    api.RequestNumber
	what      string
	do        func(ctx context.Context, m *Master, by session.Mutation) (any, error)
	concluded func(answer any, err error)
	names     []api.Name // that it may change
	on        api.HandleID

	first     session.Mutation
	sent      int
	copies    int // that have not returned
	stop      []context.CancelFunc
	done      bool
	abandoned bool // its client no longer wants the answer
	withdrawn bool // according to a Cancel
	granted   bool // according to an answer

	opened, refused bool // an Open, according to some copy
}

// join adds a client.
func (w *crowd) join() {
	w.mu.Lock()
	w.nonces++
	nonce := append(make([]byte, 14), byte(w.nonces>>8), byte(w.nonces))
	m := w.current.Master
	w.mu.Unlock()
	sent := time.Now()
	create := raftfsm.CreateSession{Nonce: nonce, Principal: w.principal(), Lease: time.Duration(1+w.below(12)) * time.Second, MayCache: w.percent(70), CacheLease: w.percent(70)}
	id, grant, err := m.Sessions.Create(w.ctx, create)
	if err != nil {
		return // it tries again later
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &member{
		w: w, id: id, epoch: m.epoch.number, grant: grant.Number,
		lease: sent.Add(grant.Lease), leased: m.Sessions.NeedsCacheLease(id),
		open: map[api.RequestNumber]*crowdRequest{}, holds: map[api.HandleID]held{}, lost: map[api.HandleID]api.Generation{}, vacated: map[[2]uint64]bool{},
		tainted: map[api.HandleID]bool{}, cache: map[api.Name]seen{}, dropped: map[api.Name]int{}, changing: map[api.Name]int{},
	}
	w.members = append(w.members, c)
	w.work.Go(c.keep)
}

// principal returns one of two principals.
func (w *crowd) principal() string { return fmt.Sprintf("p%d", w.below(2)) }

// die ends its session.
func (c *member) die() {
	c.w.note("%v has ended", c.id)
	c.dead = true
	clear(c.holds)
	clear(c.cache)
}

// master returns the master that it knows, which may have been replaced.
func (c *member) master() *Master {
	if was := c.w.before; was != nil && c.epoch <= was.epoch.number && c.loyal {
		return was.Master
	}
	return c.w.current.Master
}

// outstanding returns the requests whose answers it wants, in order.
func (c *member) outstanding() []*crowdRequest {
	var list []*crowdRequest
	for _, r := range c.open {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *crowdRequest) int { return cmp.Compare(a.number, b.number) })
	return list
}

// declaration returns the mutation of a request that is sent now.
func (c *member) declaration(n api.RequestNumber) session.Mutation {
	by := session.Mutation{Session: c.id, Number: n, HighestIssued: c.number, Hash: 1}
	for _, r := range c.outstanding() {
		by.Outstanding = append(by.Outstanding, r.number)
	}
	return by
}

// ask begins a request.
func (c *member) ask(what string, on api.HandleID, names []api.Name, do func(context.Context, *Master, session.Mutation) (any, error), concluded func(any, error)) *crowdRequest {
	c.number++
	r := &crowdRequest{number: c.number, on: on, what: what, do: do, concluded: concluded, names: names}
	c.all = append(c.all, r)
	c.open[r.number] = r
	for _, name := range names {
		c.changing[name]++
		delete(c.cache, name)
		c.dropped[name]++
	}
	r.first = c.declaration(r.number)
	c.send(r, r.first)
	return r
}

// send sends a copy of a request.
func (c *member) send(r *crowdRequest, by session.Mutation) {
	ctx, stop := context.WithCancel(c.w.ctx)
	r.stop = append(r.stop, stop)
	r.sent++
	r.copies++
	if c.w.percent(15) { // the network makes copies
		c.w.work.Go(func() {
			c.w.upTo(20 * time.Millisecond)
			c.w.mu.Lock()
			defer c.w.mu.Unlock()
			c.send(r, by)
		})
	}
	m := c.master()
	c.w.note("%v sends %v: up to %d, %v", c.id, r, by.HighestIssued, by.Outstanding)
	c.w.work.Go(func() {
		defer stop()
		c.w.upTo(2 * time.Millisecond)
		answer, err := r.do(ctx, m, by)
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		r.copies--
		if c.w.ctx.Err() == nil {
			c.hear(r, answer, err)
		}
	})
}

// hear handles an answer to a request, if it is final.
func (c *member) hear(r *crowdRequest, answer any, err error) {
	if got, ok := answer.(raftfsm.Answer); ok && err == nil && got.Generation > 0 {
		r.granted = true
	}
	failIf(c.w.t, r.granted && r.withdrawn, "session %v: request %v was granted, and withdrawn", c.id, r)
	c.w.note("%v hears of %v: %v", c.id, r, err)
	var e *api.Error
	if strings.HasPrefix(r.what, "open ") && c.w.tidy {
		r.opened = r.opened || err == nil
		r.refused = r.refused || errors.As(err, &e) && e.Final && e.Code != api.InvalidArgument // which may be that its number is finished
		failIf(c.w.t, r.opened && r.refused, "copies of %v were answered both ways: one was done, one refused: %v", r, err)
		if r.refused {
			c.leavesNothing(r)
		}
	}
	switch {
	case r.done || c.dead:
		return
	case errors.Is(err, api.SessionExpired):
		c.die()
		return
	case err == nil:
	case !errors.As(err, &e):
		c.w.t.Errorf("request %v: %v is no error of the cell's", r, err)
		return
	case e.Final:
	default:
		switch e.Code {
		case api.NotMaster, api.Unavailable, api.Uncertain, api.StaleEpoch, api.DeadlineExceeded, api.Cancelled:
			return
		}
		if r.sent > 1 { // earlier attempts may have been done
			c.taint(r)
			c.conclude(r, nil, err)
			return
		}
	}
	c.conclude(r, answer, err)
}

// leavesNothing checks that a refused Open has left nothing.
func (c *member) leavesNothing(r *crowdRequest) {
	owner := namespace.Owner{Session: c.id, Handle: api.HandleID(r.number)}
	for node := range c.w.state.Load().Tree.All() {
		failIf(c.w.t, node.Holds(owner) || slices.Contains(node.Openers, owner), "%v was refused, and has left %+v", r, node)
	}
}

// taint notes that the result of a request is unknown.
func (c *member) taint(r *crowdRequest) {
	c.tainted[cmp.Or(r.on, api.HandleID(r.number))] = true
}

func (c *member) conclude(r *crowdRequest, answer any, err error) {
	r.done = true
	delete(c.open, r.number)
	if !r.abandoned {
		for _, name := range r.names {
			c.changing[name]--
		}
	}
	if r.concluded != nil && !r.abandoned {
		r.concluded(answer, err)
	}
}

// got handles a grant.
func (c *member) got(h Handle, a raftfsm.Answer) {
	if c.ended {
		return // what it holds is released with the session
	}
	if a.Generation <= c.lost[h.Owner.Handle] {
		c.release(h.Owner.Handle, held{lock: a.Lock, generation: a.Generation, h: h}) // as the client library releases a grant that came too late
		return
	}
	if c.holds[h.Owner.Handle].generation > a.Generation {
		return // the handle has lost that lock since, and has it again
	}
	failIf(c.w.t, a.Lock != h.Node, "%v is of %v, and was granted %v", h.Owner, h.Node, a.Lock)
	c.w.note("%v holds %v in %v mode with token %d", h.Owner, a.Lock, a.Mode, a.Generation)
	c.holds[h.Owner.Handle] = held{lock: a.Lock, mode: a.Mode, generation: a.Generation, h: h}
	now := time.Now()
	for _, other := range c.w.members {
		for id, o := range other.holds {
			if (other != c || id != h.Owner.Handle) && o.lock == a.Lock && o.mode.Conflicts(a.Mode) && !c.w.forced[a.Lock.Name] &&
				now.Before(other.lease) && now.Before(c.lease) {
				c.w.t.Errorf("two sessions hold %v: session %v with token %d, session %v with token %d", a.Lock, other.id, o.generation, c.id, a.Generation)
			}
		}
	}
}

// keep sends KeepAlives.
func (c *member) keep() {
	for c.w.ctx.Err() == nil {
		c.w.mu.Lock()
		if c.leased && c.w.percent(30) {
			c.renewCache() // also while it is silent
		}
		m, dead, silent := c.master(), c.dead, c.silent
		who, says := Caller{Session: c.id, Epoch: c.epoch}, Receipt{Received: c.received, Acknowledged: c.acked, Grant: c.grant}
		c.w.mu.Unlock()
		if dead {
			return
		}
		if silent {
			c.w.upTo(time.Second)
			continue
		}
		sent := time.Now()
		ctx, cancel := context.WithTimeout(c.w.ctx, time.Minute)
		reply, err := m.Sessions.KeepAlive(ctx, who, says, nil)
		cancel()
		if err != nil {
			c.w.mu.Lock()
			if errors.Is(err, api.SessionExpired) {
				c.die()
			}
			c.loyal = c.loyal && !errors.Is(err, api.NotMaster)
			c.w.mu.Unlock()
			c.w.upTo(100 * time.Millisecond)
			continue
		}
		if c.w.percent(int(c.w.losses.Load())) {
			c.w.upTo(time.Second)
			continue
		}
		c.w.mu.Lock()
		c.told(m.epoch.number, reply, sent)
		c.w.mu.Unlock()
		c.w.upTo(20 * time.Millisecond)
	}
}

// told handles the reply to a KeepAlive.
func (c *member) told(e api.Epoch, reply Extension, sent time.Time) {
	if e != c.epoch {
		c.epoch, c.received, c.acked, c.grant, c.cached = e, 0, 0, 0, time.Time{}
		for id, h := range c.holds {
			h.leaving = 0
			c.holds[id] = h
		}
	}
	if g := reply.Grant; g != nil {
		c.grant = g.Number
		if end := sent.Add(g.Parked + g.Lease); end.After(c.lease) {
			c.lease = end
		}
	}
	for _, e := range reply.Events {
		if e.Sequence <= c.received {
			continue
		}
		failIf(c.w.t, e.Sequence != c.received+1, "session %v is told event %d after %d", c.id, e.Sequence, c.received)
		c.received = e.Sequence
		c.event(e)
	}
	if time.Now().After(c.worksOn) {
		c.acked = c.received
		for id, h := range c.holds {
			if h.leaving > 0 && h.leaving <= c.acked {
				delete(c.holds, id)
			}
		}
	}
}

func (c *member) event(e *Event) {
	c.w.note("%v is told %v", c.id, e)
	switch e.Kind {
	case api.EventCacheInvalidation:
		name := api.Name(strings.TrimPrefix(e.Path, "/ls/local"))
		delete(c.cache, name)
		c.dropped[name]++
	case api.EventMasterFailedOver:
		clear(c.cache)
		c.flushed++
	case api.EventLockLost:
		id := e.Handle
		c.lost[id] = max(c.lost[id], e.Generation)
		if h, ok := c.holds[id]; ok && h.generation <= c.lost[id] {
			h.leaving = e.Sequence
			c.holds[id] = h
			if c.w.percent(30) {
				c.worksOn = time.Now().Add(time.Duration(c.w.below(int(3 * time.Second))))
			}
		}
	case api.EventLockVacant:
		lock := [2]uint64{uint64(e.Handle), uint64(e.Generation)}
		failIf(c.w.t, c.vacated[lock], "session %v got more than one event that a lock is vacant: %v", c.id, e)
		c.vacated[lock] = true
	case api.EventSessionEnded:
		c.silent, c.ended = c.silent && c.w.percent(50), true
		clear(c.holds)
	}
}
