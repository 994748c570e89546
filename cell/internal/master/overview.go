package master

import (
	"cmp"
	"context"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// Bounds of an overview.
const (
	usualOverview = 20 // entries of each list
	maxSlow       = 10 // listed sessions of a change
)

// Overview describes at most most locks, and as many changes, that have waited longest; 0 is usualOverview,
// and api.MaxListed the max.
func (in *Inspector) Overview(ctx context.Context, most int) (o api.Overview, err error) {
	done, err := in.beginPage(ctx)
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
	waited, moreWaits, err := findLongest(ctx, waits, most, sight.reads)
	if err != nil {
		return o, err
	}
	held, moreHoldups, err := findLongest(ctx, clearings, most, func(cl *clearing) bool { return sight.reads(cl.name) })
	if err != nil {
		return o, err
	}
	o.MoreWaits, o.MoreHoldups = moreWaits, moreHoldups
	bytes := 0
	for i, name := range waited {
		info := in.lockInfo(state, name.what)
		if len(info.Waiters) == 0 {
			continue // it was granted meanwhile
		}
		if bytes += LockBytes(info); bytes > api.MaxPageBytes && i > 0 {
			o.MoreWaits += len(waited) - i // a reply is bounded, like a page of ListLocks
			break
		}
		o.Waits = append(o.Waits, info)
	}
	for _, one := range held {
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

// aged is something that has waited since then.
type aged[T any] struct {
	since session.Instant
	what  T
}

// findLongest returns the oldest of the visible waits, each once, in order, and the number of the others. The error is ctx's.
func findLongest[T comparable](ctx context.Context, all []aged[T], most int, sees func(T) bool) (list []aged[T], more int, err error) {
	seen := map[T]bool{}
	for i, one := range all {
		if i%256 == 0 && ctx.Err() != nil {
			return nil, 0, endedWhileLooking(ctx)
		}
		if !seen[one.what] && sees(one.what) {
			list = append(list, one)
		}
		seen[one.what] = true
	}
	slices.SortStableFunc(list, func(a, b aged[T]) int { return cmp.Compare(a.since, b.since) })
	shown := min(len(list), most)
	return list[:shown], len(list) - shown, nil
}

func describeHoldup(in *Inspector, cl *clearing) api.Holdup {
	in.epoch.mu.LockPatient()
	defer in.epoch.mu.Unlock()
	h := api.Holdup{Path: in.epoch.path(cl.name), Waiting: max(in.epoch.clock().Sub(cl.since), 0)}
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

// Backlog returns how much waits now. It holds the mutex only to read a few numbers.
func (m *Master) Backlog() api.Backlog { return backlogOf(m.epoch, m.tables) }

func backlogOf(e *epoch, t *tables) api.Backlog {
	e.mu.Lock()
	defer e.mu.Unlock()
	changes := len(t.copyset.clearings)
	if cl := t.copyset.flush; cl != nil && !cl.isDone() {
		changes++ // after a fail-over: every change
	}
	return api.Backlog{
		Waiters: t.queues.used.all, Changes: changes, Delays: len(t.delays.ids), Handles: t.handles.used.all,
		Mail: t.boxes.mail.used.all, Copies: t.copyset.used.all, Proposals: e.proposer.waiting(),
	}
}
