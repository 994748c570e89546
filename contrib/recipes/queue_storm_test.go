//go:build linux

package recipes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

// docket is what became of items, as workers tell it.
type docket struct {
	limit int // how often they may be tried; 0: without limit

	mu    sync.Mutex // guards what follows
	items map[string]*docketItem
	fault []string
}

type docketItem struct {
	data     string
	attempts int // the highest that a worker has had
	begun    int // how many workers had it
	done     int
}

func (d *docket) put(id, data string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of(id).data = data
}

func (d *docket) of(id string) *docketItem {
	if d.items[id] == nil {
		d.items[id] = &docketItem{}
	}
	return d.items[id]
}

// begin notes a try. Each has a higher number than those before.
func (d *docket) begin(item *Item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.of(item.ID())
	if n := item.Attempt(); n <= one.attempts || d.limit > 0 && n > d.limit || one.done > 0 {
		d.fault = append(d.fault, fmt.Sprintf("%s is tried for the %d. time, after %d of %d tries; done %d times", item.ID(), n, one.attempts, d.limit, one.done))
	}
	one.attempts = item.Attempt()
	one.begun++
}

func (d *docket) done(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of(id).done++
}

// check compares with what is left in the queue: dead letters alone.
func (d *docket) check(t *testing.T, dead []QueuedItem) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, fault := range d.fault {
		t.Error(fault)
	}
	isDead := map[string]bool{}
	for _, one := range dead {
		isDead[one.ID] = true
		known := d.of(one.ID)
		if one.Attempts != d.limit || known.done > 0 || known.begun > d.limit || one.Reason == "" || one.Err != nil {
			t.Errorf("a dead letter: %+v; it was begun %d times, and done %d", one, known.begun, known.done)
		}
	}
	lost, poison := 0, 0
	for id, one := range d.items {
		switch {
		case one.done > 1:
			t.Errorf("item %s was done %d times", id, one.done)
		case isDead[id]:
			if strings.HasPrefix(one.data, "poison") {
				poison++
			}
		case strings.HasPrefix(one.data, "poison"):
			t.Errorf("an item that always fails is gone after %d tries: %s", one.attempts, id)
		case one.done == 0:
			lost++ // its worker's session ended before it heard that it was done
		}
	}
	t.Logf("%d items, %d dead letters, of which %d always fail; %d were done by workers who did not hear of it", len(d.items), len(dead), poison, lost)
	if lost > len(d.items)/10 || (poison > 0) != (d.limit > 0) || len(d.items) < *rounds/10 {
		t.Errorf("%d of %d items are gone and were not done; %d of the dead letters always fail", lost, len(d.items), poison)
	}
}

// No item is lost, none is worked on by two at a time, none is tried more often than it may be, and dead letters are
// those that were, whoever dies, gives up, takes over or is too late.
func TestQueueRandom(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 3} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) { queueRandom(t, limit) })
	}
}

func queueRandom(t *testing.T, limit int) {
	o := QueueOptions{LockDelay: api.DefaultLockDelay, Attempts: limit}
	inWorld(t, func(w *world) {
		s := recipetest.NewStorm(w.World, 1, *rounds)
		books := &docket{limit: limit, items: map[string]*docketItem{}}
		work := func(c *client.Client, r *rand.Rand) error {
			ctx, cancel := w.Brief(time.Duration(r.IntN(60_000)) * time.Millisecond)
			defer cancel()
			item, err := NewQueue(c, queueDir, o).Take(ctx)
			if err != nil {
				return err
			}
			books.begin(item)
			s.Hold(item.Context(), r, item.ID(), 1)
			switch n := r.IntN(10); {
			case n == 0:
				return item.Abandon(ctx)
			case n == 1:
				s.Expire(c) // it dies with the item
				return c.Err()
			case n < 4 || strings.HasPrefix(string(item.Data), "poison"):
				return item.Fail(ctx, "it went wrong", time.Duration(r.IntN(5_000))*time.Millisecond)
			}
			if err := item.Done(ctx); err != nil && !errors.Is(err, api.Uncertain) {
				return err
			}
			if err := item.Done(w.Ctx); err != nil {
				return err
			}
			books.done(item.ID())
			return nil
		}
		for i := range 4 {
			s.Live(fmt.Sprintf("h%d", i), work)
		}
		for i := range 2 {
			s.Live(fmt.Sprintf("p%d", i), func(c *client.Client, r *rand.Rand) error {
				ctx, cancel := w.Brief(time.Duration(r.IntN(10_000)) * time.Millisecond)
				defer cancel()
				data := "good"
				if limit > 0 && r.IntN(3) == 0 {
					data = "poison"
				}
				id, err := NewQueue(c, queueDir, QueueOptions{}).Put(ctx, []byte(data),
					Priority(r.IntN(3)-1), Delay(time.Duration(max(0, r.IntN(8)-4))*time.Second))
				if err == nil {
					books.put(id, data)
				}
				pass(time.Duration(r.IntN(2_000)) * time.Millisecond)
				return err
			})
		}
		s.Rage(time.Second, 0)
		c := w.Client("last")
		drain(w, NewQueue(c, queueDir, o), books)
		dead, err := NewQueue(c, queueDir, o).DeadLetters(w.Ctx)
		w.OK(err)
		books.check(t, dead)
	})
}

// drain works until only dead letters are left, and checks that what was due when the last item came is not of a
// higher priority.
func drain(w *world, q *Queue, books *docket) {
	w.T.Helper()
	pass(2 * time.Minute) // what dead workers held is free, and delays are over
	last := MaxPriority
	for n, err := q.Len(w.Ctx); ; n, err = q.Len(w.Ctx) {
		w.OK(err)
		if n == 0 {
			return
		}
		ctx, cancel := w.Brief(time.Minute)
		item, err := q.Take(ctx)
		cancel()
		if errors.Is(err, api.DeadlineExceeded) {
			list, err := q.List(w.Ctx)
			w.OK(err)
			if slices.ContainsFunc(list, func(one QueuedItem) bool { return books.limit == 0 || one.Attempts < books.limit }) {
				w.T.Fatalf("nobody gets %+v", list)
			}
			continue
		}
		w.OK(err)
		books.begin(item)
		if now := priorityOf(item.ID()); now > last {
			w.T.Errorf("an item of priority %d came after one of %d", now, last)
		} else {
			last = now
		}
		if strings.HasPrefix(string(item.Data), "poison") {
			w.OK(item.Fail(w.Ctx, "it went wrong", 0))
			continue
		}
		w.OK(item.Done(w.Ctx))
		books.done(item.ID())
	}
}
