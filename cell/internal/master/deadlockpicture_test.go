package master

import (
	"slices"

	"github.com/chubbylock/chubby/api"
)

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
			if o.ticket.before(t) {
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
		for _, w := range d.m.tables.queues.byName[name] {
			by := d.worker(w.claim.Mutation.Session)
			l.queue = append(l.queue, naiveWait{by, w.claim.Mode, w.ticket})
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
