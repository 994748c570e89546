package master

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// coherence keeps clients' caches consistent (Chubby §2.7): a change takes effect when no cache has what it
// changes.
type coherence struct {
	epoch       *epoch
	copyset     *tables.Copyset
	boxes       *tables.Mailboxes
	leases      *session.Leases
	revocations *revocations

	maxWeight  int64         // of the tree (namespace.Counts.Weight), see checkRoom; 0: no bound
	slowClient time.Duration // see Config.SlowClient
}

// applyChange is the only path of changes that clients can see (decision 21). It makes the names uncacheable,
// and tells the sessions that may cache them. When each has acknowledged or ended, it proposes the change.
// The observer posts its events; then the names are cacheable again, and the caller has its answer. A retry
// of a finished change does not wait. It calls after, which may be nil, once the change is observed, or never
// will be.
func (co *coherence) applyChange(ctx context.Context, by session.Mutation, c raftfsm.Command, after func(), names ...api.Name) (raftfsm.Result, error) {
	if co.epoch.isAnswered(by) {
		return co.epoch.propose(ctx, c, after)
	}
	if result, refused, err := co.refusedAnyway(ctx, by, c, after, names); refused {
		return result, err
	}
	mu := co.epoch.mu.holdPatiently()
	ch, flush := co.beginChange(mu, by.Session, names), co.takeoverFlush()
	var beside *tables.Change // names that the author has not dropped
	if others := co.epoch.state().TouchedBeside(c); len(others) > 0 {
		beside = co.beginChange(mu, 0, others)
	}
	mu.end()
	done := func() {
		co.endChange(ch)
		if beside != nil {
			co.endChange(beside)
		}
		if after != nil {
			after()
		}
	}
	//mutant: _ = flush; for _, waits := range []*tables.Change{ch, beside} {
	//mutant: for _, waits := range []*tables.Change{flush, beside} { //by TestCachesAreConsistent of ./cell
	for _, waits := range []*tables.Change{flush, ch, beside} {
		if err := co.awaitCaches(ctx, waits, names); err != nil {
			done()
			return raftfsm.Result{}, err
		}
	}
	if full := co.checkRoom(by.Session, c); full != nil {
		return co.epoch.refuseAs(ctx, by, full, done)
	}
	//mutant: co.endChange(ch); return co.epoch.propose(ctx, c, after)
	return co.epoch.propose(ctx, c, done)
}

// refusedAnyway refuses a change that would wait, if the state already rules it out: it disturbs no session,
// and spares its author the wait. The log records the refusal for good, because an earlier copy may wait here
// and succeed later. After a refusal it calls after once the log has answered, or never will. The end of ctx
// does not stop the refusal.
func (co *coherence) refusedAnyway(ctx context.Context, by session.Mutation, c raftfsm.Command, after func(), names []api.Name) (result raftfsm.Result, refused bool, err error) {
	co.epoch.mu.Lock()
	waits := co.mustWait(by.Session, names) || co.mustWait(0, co.epoch.state().TouchedBeside(c))
	co.epoch.mu.Unlock()
	if !waits || by.Session == 0 {
		return result, false, nil
	}
	because := co.epoch.state().Try(c).Refusal
	if because == nil {
		because = co.checkRoom(by.Session, c)
	}
	if because == nil {
		return result, false, nil
	}
	//mutant: result, err = co.epoch.refuseAs(ctx, by, because, func() {}); after()
	result, err = co.epoch.refuseAs(ctx, by, because, after)
	return result, true, err
}

// MaxChangeWait is the longest wait of a change for clients that do not drop copies. It is two of the longest
// leases and a moment: the current lease, and one begun by the reply with the invalidation.
const MaxChangeWait = 2*api.MaxLease + 2*time.Second

// awaitCaches waits until every session has dropped what a change needs. It logs slow sessions, and cuts them
// off if that is the policy.
func (co *coherence) awaitCaches(ctx context.Context, ch *tables.Change, names []api.Name) (err error) {
	if ch == nil || ch.NextClearing() == nil { // most often
		return nil
	}
	step := steps.Step{Kind: steps.Caches, From: co.epoch.clock()}
	began := step.From
	var look <-chan time.Time // for a trace: most clients have dropped their copies sooner
	if steps.Told(ctx, 0) != nil {
		look = time.After(firstLook)
	}
	defer func() {
		step.To, step.Err = co.epoch.clock(), err
		co.epoch.reports.metrics.ChangeWaited(step.To.Sub(began))
		if call := steps.Told(ctx, step.To.Sub(began)); call != nil {
			for _, name := range names {
				step.Names = append(step.Names, co.epoch.path(name))
			}
			call.Step(step)
		}
	}()
	slow := time.NewTimer(slowChange)
	defer slow.Stop()
	late := time.NewTimer(co.slowClient - began.Sub(ch.Since))
	defer late.Stop()
	limit := late.C
	if co.slowClient == 0 {
		limit = nil
	}
	for cl := ch.NextClearing(); cl != nil; cl = ch.NextClearing() {
		select {
		case <-cl.Done:
		case <-slow.C:
			co.epoch.reports.journal.say(slog.LevelWarn, "a change waits for clients that do not drop what they have cached",
				slog.String("event", "change_waits"), slog.Int("nodes", len(names)), slog.String("path", co.epoch.path(names[0])), slog.String("clients", co.laggards(ch)))
		case <-look:
			mu := co.epoch.mu.holdPatiently()
			step.Slow, _ = co.slowest(mu, ch)
			mu.end()
		case <-limit:
			mu := co.epoch.mu.holdPatiently()
			late.Reset(co.cutOff(mu, ch, names[0], co.epoch.clock()))
			mu.end()
		case <-ctx.Done():
			return &api.Error{
				Code: api.Unavailable, Err: context.Cause(ctx),
				Message: fmt.Sprintf("the change was not made: it waited for clients that have not dropped what they have cached: %s; each is waited for until its lease is over", co.laggards(ch)),
			}
		case <-co.epoch.ctx.Done():
			return context.Cause(co.epoch.ctx)
		}
	}
	return nil
}

// firstLook is when a traced change looks for the sessions that it waits for.
const firstLook = 20 * time.Millisecond

// laggards names the clients that a change waits for, with an estimate of very many.
func (co *coherence) laggards(ch *tables.Change) string {
	mu := co.epoch.mu.holdPatiently()
	defer mu.end()
	ids, count := co.slowest(mu, ch)
	var list []string
	for _, id := range ids {
		who := co.epoch.holder(co.epoch.state(), namespace.Holder{Owner: namespace.Owner{Session: id}})
		list = append(list, fmt.Sprintf("session %v of %s (host %s, pid %d)", id, who.Principal, who.Host, who.PID))
	}
	if more := count - len(ids); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// maxSlowest bounds the clients that are named to whoever waits for them.
const maxSlowest = 5

// slowest returns sessions that a change waits for, those with the lowest ids, and about how many there are.
func (co *coherence) slowest(mu hold, ch *tables.Change) (ids []api.SessionID, count int) {
	looked, slow := 0, map[api.SessionID]bool{}
	for _, cl := range ch.Clearings {
		for id := range co.copyset.SlowOf(cl) {
			if looked++; looked > maxSteps {
				break
			}
			slow[id] = true
			mu.pause(1)
		}
	}
	count = len(slow)
	for _, cl := range ch.Clearings {
		if looked > maxSteps {
			count = max(count, len(cl.Left), len(co.copyset.Copies[cl.Name]))
		}
	}
	ids = slices.Sorted(maps.Keys(slow))
	return ids[:min(len(ids), maxSlowest)], count
}

// cutOff stops the leases of sessions that a change has waited for too long. They end with the leases they
// have, whatever they acknowledge (decision 10). It returns when to look again, for sessions told later.
func (co *coherence) cutOff(mu hold, ch *tables.Change, name api.Name, now session.Instant) time.Duration {
	next := co.slowClient
	for _, cl := range ch.Clearings {
		for id := range co.copyset.SlowOf(cl) {
			if left := co.slowClient - co.copyset.Asked(ch, id, now); left > 0 {
				next = min(next, left)
			} else {
				co.revocations.stopLease(mu, id,
					fmt.Sprintf("it held up a change of %s for more than %v", co.epoch.path(name), co.slowClient))
			}
			mu.pause(1)
		}
	}
	return next
}

// beginChange makes names uncacheable and tells every session except by, which dropped them before it asked.
// No session joins: the names are uncacheable from the first hold on.
func (co *coherence) beginChange(mu hold, by api.SessionID, names []api.Name) *tables.Change {
	ch := &tables.Change{Names: names, Since: co.epoch.clock()}
	for _, name := range names {
		co.copyset.Changing[name]++
	}
	for _, name := range names {
		if cl := co.clearName(mu, by, name); cl != nil {
			ch.Clearings, ch.Since = append(ch.Clearings, cl), min(ch.Since, cl.Since)
		}
	}
	return ch
}

// clearName tells every session except by to drop a name, and returns the clearing, or nil.
func (co *coherence) clearName(mu hold, by api.SessionID, name api.Name) *tables.Clearing {
	c := co.copyset
	if !c.CachedBeside(by, name) {
		return nil
	}
	if cl := c.Clearings[name]; cl != nil { // the others were told, or are being told
		cl.Changes++
		if spared := cl.By; spared != by && spared != 0 {
			//mutant: return cl
			cl.By = 0
			if one := c.Copies[name][spared]; one != nil {
				co.dropCopy(cl, one)
			}
		}
		return cl
	}
	cl := &tables.Clearing{Name: name, By: by, Since: co.epoch.clock(), Changes: 1, Done: make(chan struct{})}
	c.Clearings[name] = cl
	for id, one := range c.Copies[name] {
		if id != cl.By {
			co.dropCopy(cl, one)
		}
		mu.pause(1)
	}
	return cl
}

// dropCopy tells a session once to drop a copy. epoch.mu is held.
func (co *coherence) dropCopy(cl *tables.Clearing, one *tables.CachedCopy) {
	box := co.boxes.ByID[one.Session]
	if box == nil {
		co.copyset.Forget(one)
		return
	}
	now, until := co.epoch.clock(), session.Instant(0)
	if one.Leased {
		until = co.copyset.Until[one.Session]
	}
	if one.Leased && one.Sequence == 0 {
		co.epoch.reports.usages.ofSession[one.Session].dropped(one.Name, until > one.Entered)
	}
	co.invalidate(box, one, now)
	cl.Since = min(cl.Since, one.Posted)
	co.copyset.AwaitLapse(cl, one, until, now)
}

// mustWait reports whether a change waits for any session except by. epoch.mu is held.
func (co *coherence) mustWait(by api.SessionID, names []api.Name) bool {
	if co.copyset.Flush != nil && !co.copyset.Flush.IsDone() {
		return true
	}
	for _, name := range names {
		if co.copyset.CachedBeside(by, name) {
			return true
		}
	}
	return false
}

// endChange makes names cacheable again, after a change or without it. It also ends clearings that no change
// needs: some sessions may be silent for two leases, and others may cache the name anew.
func (co *coherence) endChange(ch *tables.Change) {
	co.epoch.mu.Lock()
	defer co.epoch.mu.Unlock()
	for _, cl := range ch.Clearings {
		if cl.Changes--; cl.Changes == 0 && co.copyset.Clearings[cl.Name] == cl {
			delete(co.copyset.Clearings, cl.Name)
			co.copyset.Lapses.Drop(cl)
		}
	}
	for _, name := range ch.Names {
		if co.copyset.Changing[name]--; co.copyset.Changing[name] == 0 {
			delete(co.copyset.Changing, name)
		}
	}
}

// beginFlush begins the clearing after a takeover. A session may have anything in its cache until it has
// acknowledged the fail-over or ended (Chubby §2.9, step 6), or earlier cache leases have expired. Only
// changes wait for it (decision 12). epoch.mu is held.
func (co *coherence) beginFlush() {
	flush := &tables.Clearing{Since: co.epoch.clock(), Left: map[api.SessionID]bool{}, Done: make(chan struct{})}
	flush.Ended = []func(){func() { co.epoch.reports.metrics.TakeoverCleared(co.epoch.clock().Sub(flush.Since)) }}
	for s := range co.epoch.state().Sessions.All() {
		if s.MayCache {
			flush.Left[s.ID] = true
		}
	}
	if len(flush.Left) > 0 {
		co.copyset.Flush = flush
		co.copyset.Lapses.Put(flush, flush.Since.Add(api.CacheLease))
	}
}

// takeoverFlush returns what changes wait for after a takeover, or nil. epoch.mu is held.
func (co *coherence) takeoverFlush() *tables.Change {
	flush := co.copyset.Flush
	if flush == nil || flush.IsDone() {
		return nil
	}
	return &tables.Change{Since: flush.Since, Clearings: []*tables.Clearing{flush}}
}

// slowChange is the wait for caches after which the master logs a change.
const slowChange = time.Second

// namesTouched returns the names that look different after a change: each node is in the listing of its
// directory, which also counts children.
func namesTouched(names ...api.Name) []api.Name {
	var list []api.Name
	for _, name := range names {
		//mutant: list = append(list, name) //by TestCachesAreConsistent of ./cell
		list = append(list, name, name.Parent())
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// invalidate tells a session once to drop a copy. epoch.mu is held.
func (co *coherence) invalidate(box *tables.Mailbox, one *tables.CachedCopy, now session.Instant) {
	if one.Sequence > 0 {
		//mutant: co.copyset.Forget(one); return
		return
	}
	one.Posted = now
	one.Sequence = box.Post(&Event{Kind: api.EventCacheInvalidation, Path: co.epoch.path(one.Name)})
	co.copyset.Order[one.Session].Remove(one.Place)
	co.copyset.Told[one.Session] = append(co.copyset.Told[one.Session], one)
	co.epoch.reports.metrics.Invalidated()
}
