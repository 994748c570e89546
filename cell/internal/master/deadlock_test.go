package master

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// worker is one owner of locks: a session, or two that declare the same owner. It waits for one lock at a time.
type worker struct {
	number  int
	declare string
	clients []*soloClient
	opened  []map[api.Name]Handle // of each client
	holds   map[namespace.Owner]raftfsm.Answer
	waits   *asked
}

// asked is a request of a worker that waits.
type asked struct {
	claim   raftfsm.Claim
	detects bool
	handle  Handle
	client  *soloClient
	ticket  Ticket
	done    chan lockAnswer
}

// deadlocks is one random run.
type deadlocks struct {
	t       *testing.T
	m       *soloMaster
	rnd     *rand.Rand
	names   []api.Name
	workers []*worker
	all     bool // every request wants to be told of a deadlock
	refused int
	found   []string // what was done, for a report
}

// Random workers take and release locks. A request is answered Deadlock only if a checker that knows nothing of graphs
// agrees that it could never be granted: it lets everybody who does not wait give back everything, as often as that
// helps somebody. And if all want to be told, nobody is left who could never be granted. The same after a fail-over.
func TestDeadlocksAreFoundAndNoOthers(t *testing.T) {
	runs := 10_000
	if testing.Short() || slowdown > 1 {
		runs = 1_000
	}
	refused, seed := 0, rand.Uint64()
	for part := range 20 {
		inSolo(t, nil, func(t *testing.T, m *soloMaster) {
			for i := range runs / 20 {
				d := &deadlocks{t: t, m: m, rnd: rand.New(rand.NewPCG(seed, uint64(part*runs+i)))}
				d.run()
				if refused += d.refused; t.Failed() {
					t.Fatalf("seed %d, run %d: %q", seed, part*runs+i, d.found)
				}
			}
		})
	}
	failIf(t, refused < runs/10, "only %d deadlocks in %d runs: the runs are too tame", refused, runs)
}

func (d *deadlocks) run() {
	d.all = d.rnd.IntN(2) == 0
	for i := range 2 + d.rnd.IntN(3) {
		d.names = append(d.names, api.Name(fmt.Sprintf("/l%d", i)))
	}
	nonce := byte(0)
	for i := range 2 + d.rnd.IntN(4) {
		w := &worker{number: i, holds: map[namespace.Owner]raftfsm.Answer{}}
		sessions := 1
		if d.rnd.IntN(3) == 0 {
			sessions, w.declare = 2, fmt.Sprintf("owner%d", i)
		}
		for range sessions {
			nonce++
			c := d.m.clientOf(d.t, nonce, patient)
			opened := map[api.Name]Handle{}
			for _, name := range d.names {
				opened[name] = c.open(d.t, "/ls/local"+string(name), api.MayCreate).Handle
			}
			w.clients, w.opened = append(w.clients, c), append(w.opened, opened)
		}
		d.workers = append(d.workers, w)
	}
	for range 30 {
		d.act()
		if d.t.Failed() {
			return
		}
	}
	for _, w := range d.workers {
		for _, c := range w.clients {
			report(d.t, d.m.Sessions.End(d.t.Context(), c.who.Session))
		}
	}
	synctest.Wait()
}

func (d *deadlocks) note(format string, args ...any) {
	d.found = append(d.found, fmt.Sprintf(format, args...))
}

// act lets one worker do something, or has another master take over.
func (d *deadlocks) act() {
	if d.rnd.IntN(60) == 0 {
		d.takeOver()
		return
	}
	w := d.workers[d.rnd.IntN(len(d.workers))]
	switch {
	case w.waits != nil:
	case len(w.holds) > 0 && d.rnd.IntN(4) == 0:
		d.release(w)
	default:
		i := d.rnd.IntN(len(w.clients))
		h := w.opened[i][d.names[d.rnd.IntN(len(d.names))]]
		if _, held := w.holds[h.Owner]; held {
			return
		}
		c := w.clients[i]
		claim := c.claim(h, []api.LockMode{api.Exclusive, api.Shared}[d.rnd.IntN(2)])
		claim.DeclaredOwner = w.declare
		d.ask(w, &asked{client: c, handle: h, claim: claim, detects: d.all || d.rnd.IntN(2) == 0})
	}
}

func (d *deadlocks) release(w *worker) {
	for owner, a := range w.holds {
		for _, c := range w.clients {
			if c.who.Session != owner.Session {
				continue
			}
			d.note("worker %d releases %s", w.number, a.Lock.Name)
			delete(w.holds, owner)
			report(d.t, d.m.Locks.Release(d.t.Context(), c.mutation(), Handle{Owner: owner, Node: a.Lock}, a.Generation))
		}
		break
	}
	d.hear(nil)
}

// ask sends a request, and looks at what comes of it.
func (d *deadlocks) ask(w *worker, a *asked) {
	d.note("worker %d asks for %s, %v, detects %v", w.number, a.handle.Node.Name, a.claim.Mode, a.detects)
	before := d.picture()
	before.locks[a.handle.Node.Name].enqueue(naiveWait{w.number, a.claim.Mode, a.ticket})
	before.waiting[w.number] = true
	a.done, w.waits = make(chan lockAnswer, 1), a
	m, r := d.m, requestFor(a.claim, a.handle).detectIf(a.detects)
	r.Ticket, r.Queued = a.ticket, func(q Queued) error {
		a.ticket = q.Ticket
		return nil
	}
	go func() {
		answer, err := m.Locks.Acquire(d.t.Context(), r)
		a.done <- lockAnswer{answer, err}
	}()
	d.hear(before)
}

// hear takes the answers that have come. before is the picture with the latest request in
// it, which may have closed a cycle; nil after a release, which closes none.
func (d *deadlocks) hear(before *picture) {
	synctest.Wait()
	var stuck []int
	if before != nil {
		stuck = before.stuck()
	}
	var refused []*worker
	for _, w := range d.workers {
		if w.waits == nil {
			continue
		}
		select {
		case got := <-w.waits.done:
			a := w.waits
			w.waits = nil
			switch {
			case got.err == nil:
				w.holds[a.handle.Owner] = got.Answer
			case errors.Is(got.err, api.Deadlock):
				refused = append(refused, w)
				d.refused++
				d.note("worker %d: %v", w.number, got.err)
				d.check(w, a, got.err, stuck)
			default:
				d.t.Errorf("worker %d: %v", w.number, got.err)
			}
		default:
		}
	}
	if d.all && before != nil {
		if stuck := d.picture().stuck(); len(stuck) > 0 {
			d.t.Errorf("workers %v wait without end, and are not told", stuck)
		}
	}
	for _, w := range refused {
		for len(w.holds) > 0 && d.rnd.IntN(3) > 0 {
			d.release(w)
		}
	}
}

// check checks a Deadlock. stuck are those who could never go on when the last request had come.
func (d *deadlocks) check(w *worker, a *asked, err error, stuck []int) {
	failIf(d.t, !a.detects, "worker %d is told of a deadlock, and did not want to be", w.number)
	failIf(d.t, !slices.Contains(stuck, w.number), "worker %d is told of a deadlock, and only had to wait", w.number)
	var e *api.Error
	errors.As(err, &e)
	if len(e.Cycle) == 0 || e.Cycle[0].Session != a.client.who.Session || e.Cycle[0].Path != "/ls/local"+string(a.handle.Node.Name) || !e.Final {
		d.t.Errorf("worker %d of session %v, which waits for %s, is told %+v", w.number, a.client.who.Session, a.handle.Node.Name, e)
		return
	}
	for i, step := range e.Cycle {
		next := e.Cycle[(i+1)%len(e.Cycle)]
		failIf(d.t, d.worker(step.For) != d.worker(next.Session), "the cycle breaks at %d: %+v", i, e.Cycle)
	}
}

func (d *deadlocks) worker(id api.SessionID) int {
	for _, w := range d.workers {
		for _, c := range w.clients {
			if c.who.Session == id {
				return w.number
			}
		}
	}
	return -1
}

// takeOver has another master begin. The workers present their handles, as the library does,
// and ask again, in any order.
func (d *deadlocks) takeOver() {
	d.note("fail-over")
	d.m.failOver(d.t)
	var again []*worker
	for _, w := range d.workers {
		for i, c := range w.clients {
			c.who.Epoch = d.m.epoch.number
			for _, h := range w.opened[i] {
				report(d.t, d.m.Files.Use(h, 0, false))
			}
		}
		if w.waits != nil {
			if got := <-w.waits.done; !errors.Is(got.err, api.NotMaster) && !errors.Is(got.err, api.Uncertain) {
				d.t.Errorf("the end of the epoch is told as %v", got.err)
			}
			again = append(again, w)
		}
	}
	d.rnd.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
	waits := map[*worker]*asked{}
	for _, w := range again {
		waits[w], w.waits = w.waits, nil
	}
	for _, w := range again {
		d.ask(w, waits[w])
	}
}

// picture is who holds and waits for what.
type picture struct {
	locks   map[api.Name]*naiveLock
	waiting map[int]bool
}

type naiveLock struct {
	holders []naiveWait
	queue   []naiveWait
}

type naiveWait struct {
	worker int
	mode   api.LockMode
	ticket Ticket
}

func (l *naiveLock) enqueue(w naiveWait) {
	at := len(l.queue)
	if w.ticket != (Ticket{}) {
		at, _ = slices.BinarySearchFunc(l.queue, w.ticket, func(o naiveWait, t Ticket) int {
			if o.ticket.Before(t) {
				return -1
			}
			return 1
		})
	}
	l.queue = slices.Insert(l.queue, at, w)
}

// picture reads what the log and the queues say.
func (d *deadlocks) picture() *picture {
	p := &picture{locks: map[api.Name]*naiveLock{}, waiting: map[int]bool{}}
	d.m.epoch.mu.Lock()
	defer d.m.epoch.mu.Unlock()
	for _, name := range d.names {
		l := &naiveLock{}
		node, _ := d.m.epoch.state().Tree.Get(name)
		for _, h := range node.Holders {
			l.holders = append(l.holders, naiveWait{worker: d.worker(h.Session), mode: node.Mode})
		}
		for _, w := range d.m.tables.Queues.ByName[name] {
			by := d.worker(w.Claim.Mutation.Session)
			l.queue = append(l.queue, naiveWait{by, w.Claim.Mode, w.Ticket})
			p.waiting[by] = true
		}
		p.locks[name] = l
	}
	return p
}

// stuck returns the workers that could never go on: whatever those do who can, they do not
// get their locks. It uses the picture up.
func (p *picture) stuck() (list []int) {
	for changed := true; changed; {
		changed = false
		for _, l := range p.locks {
			l.holders = slices.DeleteFunc(l.holders, func(h naiveWait) bool { return !p.waiting[h.worker] })
			for len(l.queue) > 0 && !slices.ContainsFunc(l.holders, func(h naiveWait) bool { return h.mode.Conflicts(l.queue[0].mode) }) {
				l.holders = append(l.holders, l.queue[0])
				p.waiting[l.queue[0].worker] = false
				l.queue, changed = l.queue[1:], true
			}
		}
	}
	for w, waits := range p.waiting {
		if waits {
			list = append(list, w)
		}
	}
	slices.Sort(list)
	return list
}
