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
	w.T.Helper()
	for {
		ctx, cancel := w.Brief(time.Second)
		item, err := q.Take(ctx)
		cancel()
		if errors.Is(err, api.DeadlineExceeded) {
			return data
		}
		w.OK(err)
		data = append(data, string(item.Data))
	}
}

// Items of a higher priority come first, and those of one in the order in which they were put, also when one was given
// back meanwhile.
func TestQueuePriorities(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		q := NewQueue(w.Client("h1"), queueDir, QueueOptions{})
		for _, one := range []struct {
			data     string
			priority int
		}{{"a", 0}, {"b", -9}, {"c", 9}, {"d", 0}, {"e", 1}, {"f", -1}, {"g", 9}, {"h", -9}, {"i", 0}} {
			_, err := q.Put(w.Ctx, []byte(one.data), Priority(one.priority))
			w.OK(err)
		}
		first, err := q.Take(w.Ctx)
		w.OK(err)
		w.OK(first.Fail(w.Ctx, "not yet", 0))
		list, err := q.List(w.Ctx)
		w.OK(err)
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
		one, two := w.Client("h1"), w.Client("h2")
		a, b := NewQueue(one, queueDir, QueueOptions{}), NewQueue(two, queueDir, QueueOptions{})
		check := func(q *Queue, since time.Time, id string) *Item {
			t.Helper()
			item, err := q.Take(w.Ctx)
			w.OK(err)
			if took := time.Since(since); item.ID() != id || took < delay || took > delay+3*time.Second {
				t.Errorf("item %s, after %v; want %s", item.ID(), took, id)
			}
			return item
		}
		id, err := a.Put(w.Ctx, []byte("x"), Delay(delay))
		w.OK(err)
		put := time.Now()
		for range 3 {
			if got := w.takeAll(b); len(got) != 0 {
				t.Errorf("after %v there is %v", time.Since(put), got)
			}
			pass(10 * time.Second)
		}
		w.Succeed()
		item := check(b, put, id)
		w.OK(item.Fail(w.Ctx, "again", delay))
		given := time.Now()
		if got := w.takeAll(b); len(got) != 0 {
			t.Errorf("what was given back is there after %v", time.Since(given))
		}
		other, err := a.Put(w.Ctx, []byte("y")) // nobody is held up
		w.OK(err)
		item, err = b.Take(w.Ctx)
		w.OK(err)
		if item.ID() != other {
			t.Errorf("took %s, want %s", item.ID(), other)
		}
		item = check(a, given, id)
		w.OK(item.Fail(w.Ctx, "again", delay))
		pass(delay + 2*time.Second)
		again := time.Now()
		item, err = a.Take(w.Ctx)
		w.OK(err)
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
		q := NewQueue(w.Client("h1"), queueDir, QueueOptions{})
		for _, one := range []struct {
			by          time.Duration
			least, most time.Duration
		}{{-wrong, delay, delay + 3*time.Second}, {wrong, 0, time.Second}} {
			_, err := q.Put(w.Ctx, nil, Delay(delay))
			w.OK(err)
			pass(delay / 2)
			w.StepWall(w.Master(), one.by)
			began := time.Now()
			item, err := q.Take(w.Ctx)
			w.OK(err)
			if took := time.Since(began); took < one.least || took > one.most {
				t.Errorf("with the clock set by %v it took %v more", one.by, took)
			}
			w.OK(item.Done(w.Ctx))
		}
	})
}

// What cannot be put, or given back so, is refused, and the largest item and the longest reason are not.
func TestQueueLimits(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("h1")
		q := NewQueue(c, queueDir, QueueOptions{Attempts: 2})
		refused := func(code api.Code, err error) {
			t.Helper()
			if !errors.Is(err, code) {
				t.Errorf("%v; want %v", err, code)
			}
		}
		put := func(size int, options ...PutOption) error {
			_, err := q.Put(w.Ctx, make([]byte, size), options...)
			return err
		}
		refused(api.TooLarge, put(MaxItemSize+1))
		refused(api.InvalidArgument, put(0, Priority(MaxPriority+1)))
		refused(api.InvalidArgument, put(0, Priority(-MaxPriority-1)))
		refused(api.InvalidArgument, put(0, Delay(-1)))
		refused(api.InvalidArgument, put(0, Delay(MaxDelay+1)))
		for _, n := range []int{-1, MaxAttempts + 1} {
			_, err := NewQueue(c, queueDir, QueueOptions{Attempts: n}).Take(w.Ctx)
			refused(api.InvalidArgument, err)
		}
		w.OK(put(MaxItemSize))
		item, err := q.Take(w.Ctx)
		w.OK(err)
		refused(api.InvalidArgument, item.Fail(w.Ctx, strings.Repeat("x", api.MaxReason+1), 0))
		refused(api.InvalidArgument, item.Fail(w.Ctx, "", MaxDelay+1))
		w.OK(item.Fail(w.Ctx, strings.Repeat("\x01", api.MaxReason), 0)) // it is six times as long in JSON
		w.OK(item.Fail(w.Ctx, "it is given back", 0))
		refused(api.NotHeld, item.Done(w.Ctx))
		w.OK(item.Abandon(w.Ctx))
		item, err = q.Take(w.Ctx)
		w.OK(err)
		if len(item.Data) != MaxItemSize || item.Attempt() != 2 || !item.IsLastAttempt() {
			t.Errorf("%d bytes, try %d", len(item.Data), item.Attempt())
		}
		w.OK(item.Done(w.Ctx))
		refused(api.NotHeld, item.Fail(w.Ctx, "", 0))
	})
}

// Items of v0.1.0 are taken as they are, and given back as they are; and its workers do not see those of this version,
// nor its dead letters: they look for files of that prefix, which hold nothing but the data.
func TestQueueOfTheFirstVersion(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("h1")
		q := NewQueue(c, queueDir, QueueOptions{Attempts: 1})
		w.Mkdir(c, queueDir)
		const data = "{\"queue\":1,\"dead\":true}\nraw"
		w.Put(c, queueDir+"/item-OLD", data)
		_, err := q.Put(w.Ctx, []byte("new"), Priority(-1))
		w.OK(err)
		for range 3 {
			item, err := q.Take(w.Ctx)
			w.OK(err)
			if item.ID() != "OLD" || string(item.Data) != data || item.Attempt() != 0 || item.IsLastAttempt() {
				t.Errorf("took %s, %q, try %d", item.ID(), item.Data, item.Attempt())
			}
			w.OK(item.Fail(w.Ctx, "it is not kept", time.Hour))
		}
		item, err := q.Take(w.Ctx)
		w.OK(err)
		fresh, err := q.Take(w.Ctx)
		w.OK(err)
		w.OK(fresh.Fail(w.Ctx, "for good", 0))
		if got := w.Cat(c, queueDir+"/item-OLD"); got != data {
			t.Errorf("the file holds %q", got)
		}
		w.OK(item.Done(w.Ctx))
		dir, err := c.Open(w.Ctx, queueDir, client.OpenOptions{Read: true})
		w.OK(err)
		list, err := dir.ReadDir(w.Ctx)
		w.OK(err)
		if len(list) != 3 || slices.ContainsFunc(list, func(s api.Stat) bool { return strings.HasPrefix(s.Path.Base(), itemPrefix) }) {
			t.Errorf("a worker of v0.1.0 takes one of %v", list)
		}
	})
}

// A file that is called as items are, and holds none, or one of a later version, is passed over, and left alone.
func TestQueueLeavesAloneWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("h1")
		told := map[string]bool{}
		q := NewQueue(c, queueDir, QueueOptions{Attempts: 1, OnUnusable: func(id string, err error) {
			if !errors.Is(err, api.InvalidArgument) {
				t.Errorf("%s: %v", id, err)
			}
			told[id] = true
		}})
		w.Mkdir(c, queueDir)
		strange := map[string]string{"p0.later": "{\"queue\":2}\nx", "p0.text": "text", "p0.empty": "", "p0.none": "{}\nx"}
		for id, text := range strange {
			w.Put(c, queueDir+"/"+taskPrefix+id, text)
		}
		_, err := q.Put(w.Ctx, []byte("x"))
		w.OK(err)
		ctx, cancel := context.WithTimeout(w.Ctx, time.Minute)
		defer cancel()
		item, err := q.Take(ctx)
		w.OK(err)
		w.OK(item.Done(w.Ctx))
		for id, text := range strange {
			if got := w.Cat(c, queueDir+"/"+taskPrefix+id); got != text || !told[id] {
				t.Errorf("%s holds %q; told %v", id, got, told)
			}
		}
		list, err := q.List(w.Ctx)
		if err != nil || len(list) != len(strange) || !errors.Is(list[0].Err, api.InvalidArgument) {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
