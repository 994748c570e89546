package master

import (
	"context"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// Overview is what a cell does at one moment, as its viewer may see it.
type Overview struct {
	Epoch   api.Epoch
	Whole   bool        // the viewer may see everything
	Backlog Backlog     // zero if he may not
	Waits   []*LockInfo // the locks that somebody has waited for longest, the longest first
	Holdups []holdup    // the changes that have waited for clients' caches longest, the longest first

	MoreWaits, MoreHoldups int // besides those listed
}

// holdup is a change that waits until clients have dropped what they have cached.
type holdup struct {
	Path     string        // whose changes wait; that of the root directory: every change waits, after a fail-over
	Waiting  time.Duration // since the first of the clients was told
	Slow     []api.Holder  // sessions that it waits for, at most maxSlow
	MoreSlow int           // besides those listed

	of *clearing
}

// Of an overview.
const (
	usualOverview = 20 // entries of each list
	maxSlow       = 10 // sessions that are listed for a change
)

// Overview looks at all queues and all changes that wait, and describes the most of each that have waited longest; 0 is
// usualOverview, and api.MaxListed the most.
func (in *Inspector) Overview(ctx context.Context, most int) (o Overview, err error) {
	if _, err := in.epoch.fence.Prove(ctx); err != nil {
		return o, err
	}
	done, err := in.waitForPage(ctx)
	if err != nil {
		return o, err
	}
	defer done()
	if most <= 0 {
		most = usualOverview
	}
	most = min(most, api.MaxListed)
	state := in.epoch.state()
	sight := in.sightOf(state)
	o.Epoch, o.Whole = in.epoch.number, sight.all
	if o.Whole {
		o.Backlog = backlogOf(in.epoch, in.tables)
	}
	waits, holdups := findLongest(in, most, sight)
	o.MoreWaits, o.MoreHoldups = waits.more, holdups.more
	for _, name := range waits.list {
		if info := in.lockInfo(state, name.what); len(info.Waiters) > 0 { // else it was granted meanwhile
			o.Waits = append(o.Waits, info)
		}
	}
	for _, one := range holdups.list {
		h := one.what
		h.Path = in.epoch.path(h.of.name)
		for i := range h.Slow {
			h.Slow[i] = in.epoch.holder(state, namespace.Holder{Owner: namespace.Owner{Session: h.Slow[i].Session}})
			if !sight.sees(h.Slow[i].Principal) {
				h.Slow[i] = api.Holder{Session: h.Slow[i].Session}
			}
		}
		o.Holdups = append(o.Holdups, h)
	}
	return o, nil
}

// findLongest finds what has waited longest of what may be seen.
func findLongest(in *Inspector, most int, sight sight) (waits longestList[api.Name], holdups longestList[holdup]) {
	waits.most, holdups.most = most, most
	in.epoch.mu.LockPatient()
	defer in.epoch.mu.Unlock()
	now := in.epoch.clock()
	for name, line := range in.tables.queues.byName { // it may change in a pause; then it has what was there all the time
		if since := line[0].since; sight.reads(name) {
			waits.add(since, name)
		}
		in.epoch.mu.pause(1)
	}
	add := func(cl *clearing) {
		if !cl.isDone() && sight.reads(cl.name) {
			holdups.add(cl.since, holdup{of: cl, Waiting: max(now.Sub(cl.since), 0)})
		}
		in.epoch.mu.pause(1)
	}
	if in.tables.copyset.flush != nil {
		add(in.tables.copyset.flush)
	}
	for _, cl := range in.tables.copyset.clearings {
		add(cl)
	}
	for i := range holdups.list {
		h := &holdups.list[i].what
		for id := range in.tables.copyset.slowOf(h.of) { // none, if it has ended meanwhile
			if in.epoch.mu.pause(1); len(h.Slow) < maxSlow {
				h.Slow = append(h.Slow, api.Holder{Session: id})
			} else {
				h.MoreSlow++
			}
		}
	}
	return waits, holdups
}

// longestList keeps the most entries that are oldest, the oldest first, and counts the others.
type longestList[T any] struct {
	most int
	list []aged[T]
	more int
}

type aged[T any] struct {
	since session.Instant
	what  T
}

func (l *longestList[T]) add(since session.Instant, what T) {
	at, _ := slices.BinarySearchFunc(l.list, since, func(a aged[T], t session.Instant) int {
		if a.since <= t {
			return -1
		}
		return 1
	})
	if l.list = slices.Insert(l.list, at, aged[T]{since, what}); len(l.list) > l.most {
		l.list = l.list[:l.most]
		l.more++
	}
}
