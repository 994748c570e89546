//go:build linux

package recipes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// takeAll takes what there is, and returns the data in the order in which they came.
func (w *world) takeAll(q *Queue) (data []string) {
	w.t.Helper()
	for {
		ctx, cancel := w.brief(time.Second)
		item, err := q.Take(ctx)
		cancel()
		if errors.Is(err, api.DeadlineExceeded) {
			return data
		}
		w.ok(err)
		data = append(data, string(item.Data))
	}
}

// Items of a higher priority come first, and those of one in the order in which they were put, also when one was given
// back meanwhile.
func TestQueuePriorities(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		q := NewQueue(w.dial("h1"), queueDir, QueueOptions{})
		for _, one := range []struct {
			data     string
			priority int
		}{{"a", 0}, {"b", -9}, {"c", 9}, {"d", 0}, {"e", 1}, {"f", -1}, {"g", 9}, {"h", -9}, {"i", 0}} {
			_, err := q.Put(w.ctx, []byte(one.data), Priority(one.priority))
			w.ok(err)
		}
		first, err := q.Take(w.ctx)
		w.ok(err)
		w.ok(first.Fail(w.ctx, "not yet", 0))
		list, err := q.List(w.ctx)
		w.ok(err)
		if len(list) != 9 || list[0].ID != first.ID() || list[0].Priority != 9 || list[0].Attempts != 1 || list[0].Reason != "not yet" || list[8].Priority != -9 || list[0].Size != 1 {
			t.Errorf("the list is %+v", list)
		}
		if got := w.takeAll(q); strings.Join(got, "") != "cgeadifbh" {
			t.Errorf("it came in the order %v", got)
		}
	})
}

// Nobody takes an item before its delay is over, and who waits has it soon after, also when others look meanwhile,
// and after a fail-over.
func TestQueueDelay(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const delay = time.Minute
		one, two := w.dial("h1"), w.dial("h2")
		a, b := NewQueue(one, queueDir, QueueOptions{}), NewQueue(two, queueDir, QueueOptions{})
		check := func(q *Queue, since time.Time, id string) *Item {
			t.Helper()
			item, err := q.Take(w.ctx)
			w.ok(err)
			if took := time.Since(since); item.ID() != id || took < delay || took > delay+3*time.Second {
				t.Errorf("item %s, after %v; want %s", item.ID(), took, id)
			}
			return item
		}
		id, err := a.Put(w.ctx, []byte("x"), Delay(delay))
		w.ok(err)
		put := time.Now()
		for range 3 {
			if got := w.takeAll(b); len(got) != 0 {
				t.Errorf("after %v there is %v", time.Since(put), got)
			}
			pass(10 * time.Second)
		}
		w.failOver()
		item := check(b, put, id)
		w.ok(item.Fail(w.ctx, "again", delay))
		given := time.Now()
		if got := w.takeAll(b); len(got) != 0 {
			t.Errorf("what was given back is there after %v", time.Since(given))
		}
		other, err := a.Put(w.ctx, []byte("y")) // nobody is held up
		w.ok(err)
		item, err = b.Take(w.ctx)
		w.ok(err)
		if item.ID() != other {
			t.Errorf("took %s, want %s", item.ID(), other)
		}
		item = check(a, given, id)
		w.ok(item.Fail(w.ctx, "again", delay))
		pass(delay + 2*time.Second)
		again := time.Now()
		item, err = a.Take(w.ctx)
		w.ok(err)
		if took := time.Since(again); took > time.Second || item.Attempt() != 3 {
			t.Errorf("it took %v until try %d of what was due", took, item.Attempt())
		}
	})
}

// A wall clock that is set makes a delay shorter, or longer: but no longer than it is from when a worker waits.
func TestQueueDelayByWrongClock(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const delay, wrong = 10 * time.Minute, 5 * time.Hour
		q := NewQueue(w.dial("h1"), queueDir, QueueOptions{})
		for _, one := range []struct {
			by          time.Duration
			least, most time.Duration
		}{{-wrong, delay, delay + 3*time.Second}, {wrong, 0, time.Second}} {
			_, err := q.Put(w.ctx, nil, Delay(delay))
			w.ok(err)
			pass(delay / 2)
			w.StepWall(w.Master(), one.by)
			began := time.Now()
			item, err := q.Take(w.ctx)
			w.ok(err)
			if took := time.Since(began); took < one.least || took > one.most {
				t.Errorf("with the clock set by %v it took %v more", one.by, took)
			}
			w.ok(item.Done(w.ctx))
		}
	})
}

// What cannot be put, or given back so, is refused, and the largest item and the longest reason are not.
func TestQueueLimits(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.dial("h1")
		q := NewQueue(c, queueDir, QueueOptions{Attempts: 2})
		refused := func(code api.Code, err error) {
			t.Helper()
			if !errors.Is(err, code) {
				t.Errorf("%v; want %v", err, code)
			}
		}
		put := func(size int, options ...PutOption) error {
			_, err := q.Put(w.ctx, make([]byte, size), options...)
			return err
		}
		refused(api.TooLarge, put(MaxItemSize+1))
		refused(api.InvalidArgument, put(0, Priority(MaxPriority+1)))
		refused(api.InvalidArgument, put(0, Priority(-MaxPriority-1)))
		refused(api.InvalidArgument, put(0, Delay(-1)))
		refused(api.InvalidArgument, put(0, Delay(MaxDelay+1)))
		for _, n := range []int{-1, MaxAttempts + 1} {
			_, err := NewQueue(c, queueDir, QueueOptions{Attempts: n}).Take(w.ctx)
			refused(api.InvalidArgument, err)
		}
		w.ok(put(MaxItemSize))
		item, err := q.Take(w.ctx)
		w.ok(err)
		refused(api.InvalidArgument, item.Fail(w.ctx, strings.Repeat("x", api.MaxReason+1), 0))
		refused(api.InvalidArgument, item.Fail(w.ctx, "", MaxDelay+1))
		w.ok(item.Fail(w.ctx, strings.Repeat("\x01", api.MaxReason), 0)) // it is six times as long in JSON
		w.ok(item.Fail(w.ctx, "it is given back", 0))
		refused(api.NotHeld, item.Done(w.ctx))
		w.ok(item.Abandon(w.ctx))
		item, err = q.Take(w.ctx)
		w.ok(err)
		if len(item.Data) != MaxItemSize || item.Attempt() != 2 || !item.IsLastAttempt() {
			t.Errorf("%d bytes, try %d", len(item.Data), item.Attempt())
		}
		w.ok(item.Done(w.ctx))
		refused(api.NotHeld, item.Fail(w.ctx, "", 0))
	})
}

// Items of v0.1.0 are taken as they are, and given back as they are; and its workers do not see those of this version,
// nor its dead letters: they look for files of that prefix, which hold nothing but the data.
func TestQueueOfTheFirstVersion(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.dial("h1")
		q := NewQueue(c, queueDir, QueueOptions{Attempts: 1})
		w.mkdir(c, queueDir)
		const data = "{\"queue\":1,\"dead\":true}\nraw"
		w.put(c, queueDir+"/item-OLD", data)
		_, err := q.Put(w.ctx, []byte("new"), Priority(-1))
		w.ok(err)
		for range 3 {
			item, err := q.Take(w.ctx)
			w.ok(err)
			if item.ID() != "OLD" || string(item.Data) != data || item.Attempt() != 0 || item.IsLastAttempt() {
				t.Errorf("took %s, %q, try %d", item.ID(), item.Data, item.Attempt())
			}
			w.ok(item.Fail(w.ctx, "it is not kept", time.Hour))
		}
		item, err := q.Take(w.ctx)
		w.ok(err)
		fresh, err := q.Take(w.ctx)
		w.ok(err)
		w.ok(fresh.Fail(w.ctx, "for good", 0))
		if got := w.cat(c, queueDir+"/item-OLD"); got != data {
			t.Errorf("the file holds %q", got)
		}
		w.ok(item.Done(w.ctx))
		dir, err := c.Open(w.ctx, queueDir, client.OpenOptions{Read: true})
		w.ok(err)
		list, err := dir.ReadDir(w.ctx)
		w.ok(err)
		if len(list) != 3 || slices.ContainsFunc(list, func(s api.Stat) bool { return strings.HasPrefix(s.Path.Base(), itemPrefix) }) {
			t.Errorf("a worker of v0.1.0 takes one of %v", list)
		}
	})
}

// A file that is called as items are, and holds none, or one of a later version, is passed over, and left alone.
func TestQueueLeavesAloneWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.dial("h1")
		told := map[string]bool{}
		q := NewQueue(c, queueDir, QueueOptions{Attempts: 1, OnUnusable: func(id string, err error) {
			if !errors.Is(err, api.InvalidArgument) {
				t.Errorf("%s: %v", id, err)
			}
			told[id] = true
		}})
		w.mkdir(c, queueDir)
		strange := map[string]string{"p0.later": "{\"queue\":2}\nx", "p0.text": "text", "p0.empty": "", "p0.none": "{}\nx"}
		for id, text := range strange {
			w.put(c, queueDir+"/"+taskPrefix+id, text)
		}
		_, err := q.Put(w.ctx, []byte("x"))
		w.ok(err)
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
		defer cancel()
		item, err := q.Take(ctx)
		w.ok(err)
		w.ok(item.Done(w.ctx))
		for id, text := range strange {
			if got := w.cat(c, queueDir+"/"+taskPrefix+id); got != text || !told[id] {
				t.Errorf("%s holds %q; told %v", id, got, told)
			}
		}
		list, err := q.List(w.ctx)
		if err != nil || len(list) != len(strange) || !errors.Is(list[0].Err, api.InvalidArgument) {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
