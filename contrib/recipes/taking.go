package recipes

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

const (
	// verify is how often what is waited for is looked at although no event tells of it: a lease, since the session that has it may have
	// been dead for so long already.
	verify = api.DefaultLease
	// together is how soon what another does just now is looked at again.
	together = 5 * time.Millisecond
)

// maxSweep is how many marks that are not true any more one look removes.
const maxSweep = 20

// Take waits for its turn, and then for an item that nobody works on and whose delay is over, and returns that of the
// highest priority, and among those of one the oldest. If ctx ends before, it is DeadlineExceeded or Cancelled, and
// no item is held; a try may have been counted all the same, if ctx ended in that moment. QuotaExceeded says that
// there are MaxDeadLetters dead letters, and that this worker could add more (QueueOptions.Attempts): retry
// or discard some.
func (q *Queue) Take(ctx context.Context) (*Item, error) {
	if q.o.Attempts < 0 || q.o.Attempts > MaxAttempts {
		return nil, q.fault("take an item", api.InvalidArgument, "%d attempts; want 1 to %d, or 0 for no limit", q.o.Attempts, MaxAttempts)
	}
	door, err := q.door.Enter(ctx, q.o.Reason, nil)
	if err != nil {
		return nil, hold.Ended(ctx, err, "take an item", q.dir)
	}
	defer q.door.Leave(ctx, door)
	t := &taking{q: q, door: door, busy: map[whichItem]*busyItem{}, news: make(chan struct{}, 1)}
	item, err := t.run(ctx)
	return item, hold.Ended(ctx, err, "take an item", q.dir)
}

// taking is one call of Take, while it is its turn. What it belongs to ends with run.
type taking struct {
	q        *Queue
	door     *client.Handle          // of the turnstile
	time     int64                   // of the master, in this look; 0 before it was asked for
	dead     int                     // how many dead letters there are
	busy     map[whichItem]*busyItem // the items of others
	news     chan struct{}           // capacity 1: there is reason to look again
	watching sync.WaitGroup
}

func (t *taking) run(ctx context.Context) (*Item, error) {
	watched, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		t.watching.Wait()
		var handles []*client.Handle
		for _, one := range t.busy {
			handles = append(handles, one.end()...)
		}
		hold.Leave(ctx, handles...)
	}()
	dir, err := t.q.c.Open(ctx, t.q.dir, client.OpenOptions{Read: true, Events: []api.EventKind{api.EventChildAdded, api.EventChildModified}})
	if err != nil {
		return nil, err
	}
	defer hold.Leave(ctx, dir)
	t.watching.Go(func() { t.listen(watched, dir, func() {}) })
	for {
		item, err := t.look(ctx, watched, dir)
		if item != nil || err != nil {
			return item, err
		}
		select {
		case <-t.news:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.q.c.Done():
			return nil, t.q.c.Err()
		}
	}
}

// listen tells of every event of a handle, until ctx ends or there are no more.
func (t *taking) listen(ctx context.Context, h *client.Handle, told func()) {
	for event, err := range h.Events(ctx) {
		if ctx.Err() != nil {
			return
		}
		if err == nil && (event.Child == hold.TurnstileName || strings.HasPrefix(event.Child, deadPrefix)) {
			continue // this one's own, mostly
		}
		told()
		t.again()
		if err != nil {
			return
		}
	}
}

// again asks for another look.
func (t *taking) again() {
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// look tries every item that may be free, in order. watched is the context of what is left
// behind for those that are not.
func (t *taking) look(ctx, watched context.Context, dir *client.Handle) (*Item, error) {
	list, err := listQueue(ctx, dir)
	if err != nil {
		return nil, err
	}
	t.time, t.dead = 0, len(list.dead)
	t.forget(ctx, list.live)
	t.sweep(ctx, list.stale)
	if t.q.o.Attempts > 0 && t.dead >= MaxDeadLetters {
		return nil, t.full()
	}
	for _, one := range list.live {
		item, err := t.try(ctx, watched, one)
		if item != nil || err != nil && !hold.Gone(err) {
			return item, err
		}
	}
	return nil, nil
}

// full is the error of a queue that takes no more dead letters.
func (t *taking) full() error {
	return t.q.fault("take an item", api.QuotaExceeded, "the queue has %d dead letters, and takes no more: retry or discard some", t.dead)
}

// sweep removes some marks that are not true any more.
func (t *taking) sweep(ctx context.Context, stale []api.Stat) {
	for _, one := range stale[:min(len(stale), maxSweep)] {
		removeMarks(ctx, t.q.c, one.Path.String())
	}
}

// whichItem tells items apart. The instance is 0 of those that this client may not read: their names alone are known.
type whichItem struct {
	path     api.Path
	instance api.Generation
}

func whichOf(s api.Stat) whichItem { return whichItem{s.Path, s.Instance} }

// forget closes what belongs to items that are done.
func (t *taking) forget(ctx context.Context, list []api.Stat) {
	var handles []*client.Handle
	for which, one := range t.busy {
		if !slices.ContainsFunc(list, func(s api.Stat) bool { return whichOf(s) == which }) {
			handles = append(handles, one.end()...)
			delete(t.busy, which)
		}
	}
	hold.Leave(ctx, handles...)
}

// try tries one item, unless it is known that it cannot be had.
func (t *taking) try(ctx, watched context.Context, s api.Stat) (*Item, error) {
	one, known := t.busy[whichOf(s)]
	if known && !one.settle(s.Content) {
		return nil, nil
	}
	if !known {
		one = &busyItem{stop: func() {}, content: s.Content}
		t.busy[whichOf(s)] = one
	}
	if one.handle == nil {
		// It is watched before it is tried, so that nothing is missed between the two.
		h, err := t.q.c.Open(ctx, s.Path.String(), client.OpenOptions{
			Read: true, Write: true, Kind: api.File, LockDelay: hold.Delay(t.q.o.LockDelay), Events: []api.EventKind{api.EventLockVacant},
		})
		if err != nil {
			return nil, t.pass(one, s, err)
		}
		one.handle = h
		t.await(watched, one)
	}
	var read *readItem
	if isTask(s) {
		var err error
		if read, err = t.read(ctx, one, s); read == nil || err != nil {
			return nil, err
		}
	}
	l, err := one.handle.TryAcquire(ctx, api.Exclusive, client.Reason(t.q.o.Reason))
	switch {
	case hold.Busy(err):
		// No event tells of the end of a lock-delay; nor, where others are in the lock's queue, who hide that
		// it is delayed (LockHeld), that they have given up.
		again := verify
		var e *api.Error
		if errors.As(err, &e) && e.Code == api.LockDelayed {
			again = max(e.Remaining, together)
		}
		t.after(one, again)
		return nil, nil
	case err != nil:
		return nil, t.pass(one, s, err)
	}
	item := &Item{id: itemID(s), q: t.q, held: &hold.Held{Client: t.q.c, Handle: one.handle, Lock: l}}
	if read != nil {
		if begun, err := t.begin(ctx, one, s, item, read); err != nil || !begun {
			hold.GiveUp(ctx, l)
			return nil, err
		}
	} else if item.Data, _, err = one.handle.Contents(ctx); err != nil {
		hold.GiveUp(ctx, l)
		return nil, t.pass(one, s, err)
	}
	one.end()
	delete(t.busy, whichOf(s))
	return item, nil
}

// readItem is an item as it was read before its lock was tried.
type readItem struct {
	itemRecord
	data    []byte
	content api.Generation
}

// read reads an item that has a record. It returns nil for one that is not to be tried now: a dead letter, which it
// marks, or one whose delay is not over.
func (t *taking) read(ctx context.Context, one *busyItem, s api.Stat) (*readItem, error) {
	contents, stat, err := one.handle.Contents(ctx)
	if err != nil {
		return nil, t.pass(one, s, err)
	}
	r, data, err := parseItem(s.Path.String(), contents)
	switch {
	case err != nil:
		t.passOver(one, s, err)
		return nil, nil
	case r.Dead:
		markDead(ctx, t.q.c, t.q.dir, itemID(s), stat.Content)
		t.after(one, verify)
		return nil, nil
	}
	left, err := t.delayOf(ctx, one, r, stat)
	if err != nil {
		return nil, err
	}
	if left > 0 {
		t.shut(ctx, one) // its lock says nothing of the delay
		t.after(one, left)
		return nil, nil
	}
	return &readItem{itemRecord: r, data: data, content: stat.Content}, nil
}

// delayOf returns how much is left of an item's delay. Both moments are the masters': when the contents were
// written, and now. It is never more than the whole delay, and none once that was waited for here.
func (t *taking) delayOf(ctx context.Context, one *busyItem, r itemRecord, stat api.Stat) (time.Duration, error) {
	if one.delayed == stat.Content && one.hasRung() {
		one.waited = stat.Content
	}
	if r.Delay <= 0 || one.waited == stat.Content {
		return 0, nil
	}
	if t.time == 0 {
		now, err := t.door.SetContents(ctx, nil) // which says by what clock the master writes
		if err != nil && !hold.Unusable(err) {
			return 0, err
		}
		t.time = now.ModifiedUnix
	}
	whole := min(r.Delay, int64(MaxDelay/time.Second)) + 1 // both moments are cut to seconds
	left := whole
	if t.time != 0 && stat.ModifiedUnix != 0 {
		//mutant: left = max(0, max(0, whole-(t.time-stat.ModifiedUnix)))
		left = min(whole, max(0, whole-(t.time-stat.ModifiedUnix)))
	}
	one.delayed = stat.Content
	return time.Duration(left) * time.Second, nil
}

// begin counts the try, or makes the item a dead letter if it was tried often enough. It writes only if the lock is
// held and the contents are those that were read, and reports whether the work may begin.
func (t *taking) begin(ctx context.Context, one *busyItem, s api.Stat, item *Item, read *readItem) (bool, error) {
	next, dead := read.next(t.q.o.Attempts)
	if dead && t.dead >= MaxDeadLetters {
		return false, t.full()
	}
	stat, err := next.write(ctx, one.handle, item.held.Lock, read.data, read.content)
	switch {
	case errors.Is(err, api.GenerationMismatch), errors.Is(err, api.BadSequencer): // another has had it meanwhile, or has it
		one.stir()
		t.after(one, together)
		return false, nil
	case errors.Is(err, api.QuotaExceeded): // of a file that Put has not made; the lock, which is released, says nothing of it
		//mutant: /* nothing */
		t.shut(ctx, one)
		t.passOver(one, s, err)
		return false, nil
	case err != nil:
		return false, t.pass(one, s, err)
	case dead:
		t.dead++
		markDead(ctx, t.q.c, t.q.dir, itemID(s), stat.Content)
		return false, nil
	}
	item.Data, item.data, item.content = bytes.Clone(read.data), read.data, stat.Content
	item.before, item.record = read.itemRecord, &next
	return true, nil
}

// shut closes the handle of an item, and releases its lock, until the item is tried again.
func (t *taking) shut(ctx context.Context, one *busyItem) {
	hold.Leave(ctx, one.end()...)
	one.handle, one.stop = nil, func() {}
}

// pass passes over an item that cannot be used, because of err, until it is tried again; any other error
// it returns.
func (t *taking) pass(one *busyItem, s api.Stat, err error) error {
	if !hold.Unusable(err) {
		return err
	}
	t.passOver(one, s, err)
	return nil
}

func (t *taking) passOver(one *busyItem, s api.Stat, err error) {
	if !hold.Gone(err) && !errors.Is(err, api.Exists) && !one.reported && t.q.o.OnUnusable != nil { // else it is done, or about to go
		one.reported = true
		t.q.o.OnUnusable(itemID(s), err)
	}
	t.after(one, verify)
}

// await stirs an item when its lock is vacant.
func (t *taking) await(ctx context.Context, one *busyItem) {
	ctx, one.stop = context.WithCancel(ctx)
	handle := one.handle // which is forgotten while this one is still ending
	t.watching.Go(func() { t.listen(ctx, handle, one.stir) })
}

// after stirs an item some time from now, and not at the time that was set before.
func (t *taking) after(one *busyItem, delay time.Duration) {
	set := one.reset()
	if one.timer != nil {
		one.timer.Stop()
	}
	one.timer = time.AfterFunc(delay, func() {
		if one.ring(set) {
			t.again()
		}
	})
}
