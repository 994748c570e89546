package recipe

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Queue hands out items of work, each to one worker at a time, until it is done. It is a directory: an
// item is a file, with its data, whose lock a worker holds while it works; to be done is to delete the
// file, if that lock is still held. The order is that of creation: the instance numbers of files, of
// which the cell never uses one twice.
//
// An item whose worker dies is taken by another when lease and lock-delay are over; the first one's
// Done is refused from then on, and servers that check the item's sequencer refuse its other acts. So
// no item is lost, and none is done by two at a time, but one may be begun several times: work is to be
// such that it can be.
//
// One worker at a time looks for an item, in the order in which they came; the others wait for it in the
// cell's queue (32 of one Queue; the others wait here). Who looks is told of new items and of those that
// are given up; besides, he tries each that is another's once in a lease, since strangers may wait for its
// lock (chubbyctl acquire) and give up, of which nobody is told.
//
// An item that a worker may not use, or that is no file, is passed over (QueueOptions.OnUnusable); the
// others are not held up by it.
//
// It is for some thousand items and some hundred a second: a lock service keeps little and changes it
// seldom. A message broker is something else.
type Queue struct {
	c    *client.Client
	dir  string
	o    QueueOptions
	door *turnstile
}

// QueueOptions are those of a Queue.
type QueueOptions struct {
	// LockDelay is how long nobody may have the item of a worker that has failed, after its lease: 0 to
	// api.MaxLockDelay. api.DefaultLockDelay is a good choice where the servers that the work goes to do
	// not check sequencers.
	LockDelay time.Duration
	// Reason is shown to those who look who works on what; at most api.MaxReason bytes.
	Reason string
	// OnUnusable is called, if it is not nil, for each item that Take has passed over because it cannot be
	// used, with the code PermissionDenied for example: once in each Take, by the goroutine that called it,
	// which waits for it. What is passed over is tried again once in a lease.
	OnUnusable func(id string, err error)
}

const itemPrefix = "item-"

// NewQueue returns the queue of a directory. It asks nobody: the directory is made by the first who
// uses it, in one that is there.
func NewQueue(c *client.Client, dir string, o QueueOptions) *Queue {
	return &Queue{c: c, dir: dir, o: o, door: newTurnstile(c, dir, nil)}
}

// Put adds an item of at most api.MaxContents bytes, and returns its id. With the error Uncertain the
// item may be in the queue, under that id; to put it again may have it done twice.
func (q *Queue) Put(ctx context.Context, data []byte) (id string, err error) {
	id = rand.Text()
	h, err := openIn(ctx, q.c, q.dir, itemPrefix+id, client.OpenOptions{Write: true, Create: client.NewFile, Contents: data})
	if err != nil {
		return id, err
	}
	leave(ctx, h)
	return id, nil
}

// Len returns how many items there are, those that are worked on too.
func (q *Queue) Len(ctx context.Context) (int, error) {
	h, err := q.c.Open(ctx, q.dir, client.OpenOptions{Read: true})
	if errors.Is(err, api.NotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer leave(ctx, h)
	list, err := itemsIn(ctx, h)
	return len(list), err
}

// itemsIn returns the items of the directory, in order.
func itemsIn(ctx context.Context, dir *client.Handle) ([]api.Stat, error) {
	list, err := dir.ReadDir(ctx)
	list = slices.DeleteFunc(slices.Clone(list), func(one api.Stat) bool {
		return one.Kind != api.File || !strings.HasPrefix(one.Path.Base(), itemPrefix)
	})
	slices.SortFunc(list, func(a, b api.Stat) int { return cmp.Compare(a.Instance, b.Instance) })
	return list, err
}

// Take waits for its turn, and then for an item that nobody works on, and returns the oldest. If ctx
// ends before, it is DeadlineExceeded or Cancelled, and no item is held.
func (q *Queue) Take(ctx context.Context) (*Item, error) {
	door, err := q.door.enter(ctx, q.o.Reason, func(*client.Handle) error { return nil })
	if err != nil {
		return nil, ended(ctx, err, "take an item", q.dir)
	}
	defer q.door.leave(ctx, door)
	t := &taking{q: q, busy: map[api.Generation]*busyItem{}, news: make(chan struct{}, 1)}
	item, err := t.run(ctx)
	return item, ended(ctx, err, "take an item", q.dir)
}

// taking is one call of Take, while it is its turn. What it belongs to ends with run.
type taking struct {
	q        *Queue
	busy     map[api.Generation]*busyItem // the items of others, by their instances
	news     chan struct{}                // capacity 1: there is reason to look again
	watching sync.WaitGroup
}

// busyItem is an item that was locked when it was tried, or could not be used, and what is waited for
// since.
type busyItem struct {
	handle *client.Handle // open for lock-vacant; nil if it could not be opened
	stop   func()         // ends the watch
	timer  *time.Timer    // stirs it; nil before the first

	reported bool // as one that cannot be used

	mu      sync.Mutex // guards stirred
	stirred bool       // it is to be tried again
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
		leave(ctx, handles...)
	}()
	dir, err := t.q.c.Open(ctx, t.q.dir, client.OpenOptions{Read: true, Events: []api.EventKind{api.EventChildAdded}})
	if err != nil {
		return nil, err
	}
	defer leave(ctx, dir)
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
	for _, err := range h.Events(ctx) {
		if ctx.Err() != nil {
			return
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

// look tries every item that may be free, the oldest first. watched is the context of what is left
// behind for those that are not.
func (t *taking) look(ctx, watched context.Context, dir *client.Handle) (*Item, error) {
	list, err := itemsIn(ctx, dir)
	if err != nil {
		return nil, err
	}
	t.forget(ctx, list)
	for _, one := range list {
		item, err := t.try(ctx, watched, one)
		if item != nil || err != nil && !gone(err) {
			return item, err
		}
	}
	return nil, nil
}

// forget closes what belongs to items that are done.
func (t *taking) forget(ctx context.Context, list []api.Stat) {
	var handles []*client.Handle
	for instance, one := range t.busy {
		if !slices.ContainsFunc(list, func(s api.Stat) bool { return s.Instance == instance }) {
			handles = append(handles, one.end()...)
			delete(t.busy, instance)
		}
	}
	leave(ctx, handles...)
}

// try tries one item, unless it is known to be another's.
func (t *taking) try(ctx, watched context.Context, s api.Stat) (*Item, error) {
	one, known := t.busy[s.Instance]
	if known && !one.settle() {
		return nil, nil
	}
	if !known {
		one = &busyItem{stop: func() {}}
		t.busy[s.Instance] = one
	}
	if one.handle == nil {
		// It is watched before it is tried, so that nothing is missed between the two.
		h, err := t.q.c.Open(ctx, s.Path.String(), client.OpenOptions{
			Read: true, Write: true, Kind: api.File, LockDelay: t.q.o.LockDelay, Events: []api.EventKind{api.EventLockVacant},
		})
		if err != nil {
			return nil, t.pass(one, s, err)
		}
		one.handle = h
		t.await(watched, one)
	}
	l, err := one.handle.TryAcquire(ctx, api.Exclusive, client.Reason(t.q.o.Reason))
	switch {
	case isBusy(err):
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
	item := &Item{id: itemID(s), held: &held{c: t.q.c, handle: one.handle, lock: l}}
	if item.Data, _, err = one.handle.Contents(ctx); err != nil {
		giveUp(ctx, l)
		return nil, t.pass(one, s, err)
	}
	one.end()
	delete(t.busy, s.Instance)
	return item, nil
}

func itemID(s api.Stat) string { return strings.TrimPrefix(s.Path.Base(), itemPrefix) }

// pass passes over an item that cannot be used, because of err, until it is tried again; any other error
// it returns.
func (t *taking) pass(one *busyItem, s api.Stat, err error) error {
	switch {
	case !unusable(err):
		return err
	case gone(err) || errors.Is(err, api.Exists) || one.reported: // it is done, or about to go
	case t.q.o.OnUnusable != nil:
		one.reported = true
		t.q.o.OnUnusable(itemID(s), err)
	}
	t.after(one, verify)
	return nil
}

// settle reports whether the item is to be tried again.
func (b *busyItem) settle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.stirred
	b.stirred = false
	return was
}

func (b *busyItem) stir() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stirred = true
}

// await stirs an item when its lock is vacant.
func (t *taking) await(ctx context.Context, one *busyItem) {
	ctx, one.stop = context.WithCancel(ctx)
	t.watching.Go(func() { t.listen(ctx, one.handle, one.stir) })
}

// after stirs an item some time from now, and not at the time that was set before.
func (t *taking) after(one *busyItem, delay time.Duration) {
	if one.timer != nil {
		one.timer.Reset(delay)
		return
	}
	one.timer = time.AfterFunc(delay, func() {
		one.stir()
		t.again()
	})
}

// end ends what waits for the item. It returns its handle, if there is one.
func (b *busyItem) end() []*client.Handle {
	b.stop()
	if b.timer != nil {
		b.timer.Stop()
	}
	if b.handle == nil {
		return nil
	}
	return []*client.Handle{b.handle}
}
