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
	Backlog Backlog     // zero if not Whole
	Waits   []*LockInfo // locks with the longest waits, in order
	Holdups []holdup    // changes that have waited longest for caches, in order

	MoreWaits, MoreHoldups int // besides those listed
}

// holdup is a change that waits for clients' caches.
type holdup struct {
	Path     string        // of its node; of the root directory if every change waits, after a fail-over
	Waiting  time.Duration // since the first client was told
	Slow     []api.Holder  // waited for, at most maxSlow
	MoreSlow int           // besides those listed
}

// Bounds of an overview.
const (
	usualOverview = 20 // entries of each list
	maxSlow       = 10 // listed sessions of a change
)

// Overview describes at most most locks, and as many changes, that have waited longest; 0 is usualOverview,
// and api.MaxListed the max.
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
	waits, clearings := collectWaits(in)
	state := in.epoch.state() // read after that: it has the waiters
	sight := in.sightOf(state)
	o.Epoch, o.Whole = in.epoch.number, sight.all
	if o.Whole {
		o.Backlog = backlogOf(in.epoch, in.tables)
	}
	longest, err := findLongest(ctx, waits, most, sight.reads)
	if err != nil {
		return o, err
	}
	held, err := findLongest(ctx, clearings, most, func(cl *clearing) bool { return sight.reads(cl.name) })
	if err != nil {
		return o, err
	}
	o.MoreWaits, o.MoreHoldups = longest.more, held.more
	bytes := 0
	for i, name := range longest.list {
		info := in.lockInfo(state, name.what)
		if len(info.Waiters) == 0 {
			continue // it was granted meanwhile
		}
		if bytes += info.WireSize(); bytes > api.MaxPageBytes && i > 0 {
			o.MoreWaits += len(longest.list) - i // a reply is bounded, like a page of ListLocks
			break
		}
		o.Waits = append(o.Waits, info)
	}
	for _, one := range held.list {
		h := describeHoldup(in, one.what)
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

// maxOldest bounds the search for a queue's oldest request. Usually that is the first; after a fail-over, not
// always.
const maxOldest = 100

// collectWaits copies the subjects and ages of all queues and changes, under the mutex. It checks no rights,
// which may take long. A change in a pause may be missing, or be there twice.
func collectWaits(in *Inspector) (waits []aged[api.Name], clearings []aged[*clearing]) {
	in.epoch.mu.LockPatient()
	defer in.epoch.mu.Unlock()
	for name, line := range in.tables.queues.byName {
		oldest := line[0].since
		//mutant: _ = in.sightOf(in.epoch.state()).reads(name); for _, w := range line[:min(len(line), maxOldest)] {
		for _, w := range line[:min(len(line), maxOldest)] {
			oldest = min(oldest, w.since)
		}
		waits = append(waits, aged[api.Name]{oldest, name})
		in.epoch.mu.pause(1 + min(len(line), maxOldest)/16)
	}
	if cl := in.tables.copyset.flush; cl != nil && !cl.isDone() {
		clearings = append(clearings, aged[*clearing]{cl.since, cl})
	}
	for _, cl := range in.tables.copyset.clearings {
		clearings = append(clearings, aged[*clearing]{cl.since, cl})
		in.epoch.mu.pause(1)
	}
	return waits, clearings
}

// findLongest returns the oldest of the visible waits, each once. The error is ctx's.
func findLongest[T comparable](ctx context.Context, all []aged[T], most int, sees func(T) bool) (longestList[T], error) {
	longest, seen := longestList[T]{most: most}, map[T]bool{}
	for i, one := range all {
		if i%256 == 0 && ctx.Err() != nil {
			return longest, &api.Error{Code: api.ContextCode(context.Cause(ctx)), Message: "the call ended while it looked at what waits", Err: context.Cause(ctx)}
		}
		if !seen[one.what] && sees(one.what) {
			longest.add(one.since, one.what)
		}
		seen[one.what] = true
	}
	return longest, nil
}

func describeHoldup(in *Inspector, cl *clearing) holdup {
	in.epoch.mu.LockPatient()
	defer in.epoch.mu.Unlock()
	h := holdup{Path: in.epoch.path(cl.name), Waiting: max(in.epoch.clock().Sub(cl.since), 0)}
	for id := range in.tables.copyset.slowOf(cl) { // none, if it has ended meanwhile
		if len(h.Slow) < maxSlow {
			h.Slow = append(h.Slow, api.Holder{Session: id})
		} else {
			h.MoreSlow++
		}
		in.epoch.mu.pause(1)
	}
	return h
}

// longestList keeps the most oldest entries, in order, and counts the others.
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
