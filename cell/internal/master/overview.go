package master

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
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
	held, moreHoldups, err := findLongest(ctx, clearings, most, func(cl *tables.Clearing) bool { return sight.reads(cl.Name) })
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
func collectWaits(in *Inspector) (waits []aged[api.Name], clearings []aged[*tables.Clearing]) {
	mu := in.epoch.mu.holdPatiently()
	defer mu.end()
	for name, line := range in.tables.Queues.ByName {
		oldest := line[0].Since
		//mutant: _ = in.sightOf(in.epoch.state()).reads(name); for _, w := range line[:min(len(line), maxOldest)] {
		for _, w := range line[:min(len(line), maxOldest)] {
			oldest = min(oldest, w.Since)
		}
		waits = append(waits, aged[api.Name]{oldest, name})
		mu.pause(1 + min(len(line), maxOldest)/16)
	}
	if cl := in.tables.Copyset.Flush; cl != nil && !cl.IsDone() {
		clearings = append(clearings, aged[*tables.Clearing]{cl.Since, cl})
	}
	for _, cl := range in.tables.Copyset.Clearings {
		clearings = append(clearings, aged[*tables.Clearing]{cl.Since, cl})
		mu.pause(1)
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

func describeHoldup(in *Inspector, cl *tables.Clearing) api.Holdup {
	mu := in.epoch.mu.holdPatiently()
	defer mu.end()
	h := api.Holdup{Path: in.epoch.path(cl.Name), Waiting: max(in.epoch.clock().Sub(cl.Since), 0)}
	for id := range in.tables.Copyset.SlowOf(cl) { // none, if it has ended meanwhile
		if len(h.Slow) < maxSlow {
			h.Slow = append(h.Slow, api.Holder{Session: id})
		} else {
			h.MoreSlow++
		}
		mu.pause(1)
	}
	return h
}

// Backlog returns how much waits now. It holds the mutex only to read a few numbers.
func (m *Master) Backlog() api.Backlog { return backlogOf(m.epoch, m.tables) }

func backlogOf(e *epoch, t *tables.Tables) api.Backlog {
	e.mu.Lock()
	defer e.mu.Unlock()
	changes := len(t.Copyset.Clearings)
	if cl := t.Copyset.Flush; cl != nil && !cl.IsDone() {
		changes++ // after a fail-over: every change
	}
	return api.Backlog{
		Waiters: t.Queues.Used.All, Changes: changes, Delays: len(t.Delays.IDs), Handles: t.Handles.Used.All,
		Mail: t.Boxes.Used.All, Copies: t.Copyset.Used.All, Proposals: e.proposer.waiting(),
	}
}

// Explain describes a node's lock, and the sessions whose caches a change of it waits for.
func (in *Inspector) Explain(ctx context.Context, name api.Name) (e api.Explanation, err error) {
	done, err := in.beginPage(ctx)
	if err != nil {
		return e, err
	}
	defer done()
	state := in.epoch.state()
	if sight := in.sightOf(state); !sight.reads(name) {
		return e, sight.refuse(in.epoch.path(name))
	}
	e.Lock = in.lockInfo(state, name)
	node, there := state.Tree.Get(name)
	switch {
	case !there:
		e.Sentences = append(e.Sentences, "there is no such node; who opens it to create it changes it")
	case node.Dying():
		e.Sentences = append(e.Sentences, "nobody has this ephemeral node open any more: it goes as soon as those who have it in their caches have dropped it")
	}
	e.Sentences = append(e.Sentences, in.explainLock(state, name, e.Lock)...)
	e.Cachers, e.MoreCachers = in.cachers(state, name)
	e.Sentences = append(e.Sentences, in.explainChange(e.Cachers, e.MoreCachers)...)
	return e, nil
}

func (in *Inspector) explainLock(state *raftfsm.State, name api.Name, lock api.LockInfo) []string {
	node, there := state.Tree.Get(name)
	holders, waiters := len(lock.Holders)+lock.MoreHolders, len(lock.Waiters)+lock.MoreWaiters
	delayed := lock.Delayed.Round(time.Millisecond)
	switch {
	case holders > 0 && there && node.Revoked != nil:
		return []string{fmt.Sprintf("the lock is being taken from its %s (%s): it is free when they have stopped, or their leases and lock-delays are over", count(holders, "holder"), node.Revoked.Break())}
	case holders > 0:
		return []string{fmt.Sprintf("the lock is held by %s, and %s: a new request waits behind them, in its turn", count(holders, "session"), waiting(waiters))}
	case delayed > 0:
		who := "nobody can have it"
		if d, _ := state.Tree.Delay(name); d.Mode == api.Shared {
			who = "it can be had in shared mode only"
		}
		return []string{fmt.Sprintf("the lock is delayed because a holder failed: %s for another %v", who, delayed)}
	}
	return []string{"the lock is free: an Acquire waits for nobody"}
}

// cachers lists sessions that may cache a name, the longest waited for first, and the number of others. It
// looks only at some of very many.
func (in *Inspector) cachers(state *raftfsm.State, name api.Name) (list []api.Cacher, more int) {
	waited, total := in.waitedFor(name)
	slices.SortFunc(waited, func(a, b api.Cacher) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Session, b.Session))
	})
	list = waited[:min(len(waited), api.MaxListed)]
	for i := range list {
		list[i].Holder = in.epoch.holder(state, namespace.Holder{Owner: namespace.Owner{Session: list[i].Session}})
	}
	return list, total - len(list)
}

// waitedFor returns sessions that may cache a name, each with how long a change has waited for it, and their
// number. It looks at maxVisited at most, and omits those whose cache leases have expired.
func (in *Inspector) waitedFor(name api.Name) (list []api.Cacher, total int) {
	mu := in.epoch.mu.hold()
	defer mu.end()
	now := in.epoch.clock()
	add := func(id api.SessionID, since, most time.Duration) {
		end, _ := in.tables.Leases.End(id)
		list = append(list, api.Cacher{Holder: api.Holder{Session: id}, Waiting: since, AtMost: min(max(end.Sub(now), 0), most) + expirySlack})
		mu.pause(1)
	}
	flush, copies := in.tables.Copyset.Flush, in.tables.Copyset.Copies[name]
	total = len(copies)
	if flush != nil {
		total += len(flush.Left)
		for id := range flush.Left {
			if len(list) == maxVisited {
				break
			}
			most := api.MaxLease
			if s, ok := in.epoch.state().Sessions.Get(id); ok && s.CacheLease {
				most = max(flush.Since.Add(api.CacheLease).Sub(now), 0)
			}
			add(id, now.Sub(flush.Since), most)
		}
	}
	visited := len(list)
	for id, one := range copies {
		if visited++; visited > maxVisited {
			break
		}
		most := api.MaxLease
		if one.Leased {
			most = in.tables.Copyset.Left(id, now)
		}
		switch {
		case flush != nil && flush.Left[id]:
			total-- // counted above
		case one.Leased && most == 0:
			total-- // a change tells it, and does not wait for it
		case one.Sequence != 0:
			add(id, now.Sub(one.Posted), most)
		default:
			add(id, 0, most)
		}
	}
	return list, total
}

func (in *Inspector) explainChange(cachers []api.Cacher, more int) []string {
	if len(cachers) == 0 {
		return []string{"nobody has it in a cache: a change waits for nobody"}
	}
	var longest time.Duration
	var late *api.Cacher
	for i, c := range cachers {
		longest = max(longest, c.AtMost)
		if c.Waiting > slowChange && late == nil {
			late = &cachers[i]
		}
	}
	list := []string{fmt.Sprintf("%s may have it in a cache: a change waits until each has dropped it, which takes a round trip, or its lease is over, within %v",
		count(len(cachers)+more, "session"), longest.Round(100*time.Millisecond))}
	if late != nil {
		p := late.Holder
		list = append(list, fmt.Sprintf("a change has waited for session %v of %s (host %s, pid %d) for %v: it does not answer; that ends in %v, or with chubbyctl session end",
			p.Session, p.Principal, p.Host, p.PID,
			late.Waiting.Round(100*time.Millisecond), late.AtMost.Round(100*time.Millisecond)))
	}
	return list
}

func waiting(n int) string {
	switch n {
	case 0:
		return "nobody waits"
	case 1:
		return "1 waits"
	}
	return fmt.Sprintf("%d wait", n)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// History returns the holders of a lock, current and remembered ones.
func (in *Inspector) History(ctx context.Context, path api.Path) (h api.History, err error) {
	done, err := in.beginPage(ctx)
	if err != nil {
		return h, err
	}
	defer done()
	state := in.epoch.state()
	if sight := in.sightOf(state); !sight.reads(path.Name()) {
		return h, sight.refuse(path.String())
	}
	if state.Level < raftfsm.HistoryLevel {
		return h, raftfsm.NeedsLevel(raftfsm.HistoryLevel, state.Level)
	}
	node, there := state.Tree.Get(path.Name())
	if !there {
		return h, &refusal.Refusal{Cause: refusal.PathUnknown, Path: path.Parent().String()}
	}
	for _, one := range state.Ended(node) {
		h.Holdings = append(h.Holdings, *one)
	}
	listed := min(len(node.Holders), api.MaxListed)
	h.MoreHolders = len(node.Holders) - listed
	for _, one := range node.Holders[:listed] {
		who := in.epoch.holder(state, one)
		h.Holdings = append(h.Holdings, api.Holding{
			Session: who.Session, Principal: who.Principal, Host: who.Host, PID: who.PID,
			Mode: node.Mode, Generation: node.Lock, FromUnix: who.SinceUnix, Reason: who.Reason,
		})
	}
	return h, nil
}
