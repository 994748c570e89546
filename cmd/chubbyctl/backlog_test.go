package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// twinFile is a file of which a naive twin knows everything: each version, and what CMD was run for.
type twinFile struct {
	watched
	path     string
	now      api.Generation
	acquired []api.Generation // the locks that were told
	handed   []api.Generation // the contents that CMD had
	locks    []api.Generation // the locks that CMD was run for
}

// twin is a history of several files at random, and a watch of them with a slow CMD.
type twin struct {
	*testing.T
	o     *watchOptions
	mu    sync.Mutex // guards what follows, and the files
	files []*twinFile
	puts  []time.Time // when events came
}

// Whatever happens while CMD runs, for however long: CMD has the contents that are there at the end of each file, never one version
// twice, and never an older one after a newer; it runs for each event of a lock, in order.
func TestSlowHookHasTheLastContentsOnce(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			o := watching(io.Discard)
			o.exec, o.contents = "a test", contentsText
			if seed%3 == 0 {
				o.settle = settling{quiet: time.Duration(1+r.IntN(900)) * time.Millisecond}
				if seed%2 == 0 {
					o.settle.atMost = o.settle.quiet + time.Duration(r.IntN(3000))*time.Millisecond
				}
			}
			if seed%5 == 0 {
				o.contents = ""
			}
			o.backlog = newBacklog(o.settle)
			w := &twin{T: t, o: o}
			for i := range 1 + r.IntN(3) {
				f := &twinFile{path: fmt.Sprintf("/ls/local/%d", i)}
				f.watched.contents = func(context.Context) (*watchedContents, error) {
					if o.settle.quiet == 0 {
						time.Sleep(time.Millisecond)
					}
					w.mu.Lock()
					defer w.mu.Unlock()
					return newWatchedContents(nil, api.Stat{Content: f.now}), nil
				}
				w.files = append(w.files, f)
			}
			hookTime := rand.New(rand.NewPCG(seed, 2))
			longest := 1 + r.Int64N(int64(2*time.Second))
			o.run = func(_ context.Context, due []happening) error {
				w.ran(due)
				time.Sleep(time.Duration(hookTime.Int64N(longest)))
				return nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- o.consume(ctx, ctx) }()
			w.history(ctx, r)
			time.Sleep(time.Hour)
			cancel()
			<-ended
			w.compare(seed)
		})
	}
}

// history has things happen: bursts and pauses, and events that come late.
func (w *twin) history(ctx context.Context, r *rand.Rand) {
	next := api.Generation(0)
	for range 20 + r.IntN(200) {
		f := w.files[r.IntN(len(w.files))]
		next++
		e := api.Event{Kind: api.EventContentsModified, Path: f.path, Generation: next}
		w.mu.Lock()
		if r.IntN(8) == 0 {
			e.Kind = api.EventLockAcquired
			f.acquired = append(f.acquired, next)
		} else {
			f.now = next
		}
		w.puts = append(w.puts, time.Now())
		w.mu.Unlock()
		if err := w.o.backlog.put(ctx, happening{Event: e, of: &f.watched}); err != nil {
			w.Fatal(err)
		}
		if r.IntN(3) == 0 {
			time.Sleep(time.Duration(r.IntN(700)) * time.Millisecond)
		}
	}
}

// ran takes note of a run of CMD.
func (w *twin) ran(due []happening) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.o.settle; s.quiet > 0 {
		now := time.Now()
		quiet := !slices.ContainsFunc(w.puts, func(at time.Time) bool { // not what came at this very instant, after the events were taken
			return now.After(at) && now.Sub(at) < s.quiet
		})
		if !quiet && s.atMost == 0 {
			w.Errorf("CMD ran although something had just happened")
		}
	}
	for _, one := range due {
		f := w.files[slices.IndexFunc(w.files, func(f *twinFile) bool { return f.path == one.Path })]
		switch {
		case one.Kind == api.EventLockAcquired:
			f.locks = append(f.locks, one.Generation)
		case w.o.contents == "":
			f.handed = append(f.handed, one.Generation)
		default:
			f.handed = append(f.handed, one.fields.ContentGeneration)
		}
	}
}

func (w *twin) compare(seed uint64) {
	for _, f := range w.files {
		if f.now != 0 && (len(f.handed) == 0 || f.handed[len(f.handed)-1] != f.now) {
			w.Errorf("seed %d: %s is at %d in the end, and CMD had %v", seed, f.path, f.now, f.handed)
		}
		for i := range f.handed {
			if i > 0 && f.handed[i] <= f.handed[i-1] {
				w.Errorf("seed %d: CMD had %v", seed, f.handed)
			}
		}
		if !slices.Equal(f.locks, f.acquired) {
			w.Errorf("seed %d: the lock was acquired %v, and CMD ran for %v", seed, f.acquired, f.locks)
		}
	}
}

// Of thirty changes at once a slow CMD sees the first, and the last.
func TestBurstIsOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := watching(io.Discard)
		o.exec = "a test"
		var had []api.Generation
		o.run = func(_ context.Context, due []happening) error {
			for _, one := range due {
				had = append(had, one.Generation)
			}
			time.Sleep(time.Second)
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- o.consume(ctx, ctx) }()
		w := changing()
		for i := range api.Generation(30) {
			if err := o.backlog.put(ctx, happening{Event: api.Event{Kind: api.EventContentsModified, Generation: i + 1}, of: w}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		cancel()
		<-ended
		if !slices.Equal(had, []api.Generation{1, 30}) {
			t.Errorf("CMD ran for %v", had)
		}
	})
}

// What changes all the time is told after --settle-at-most, and else when it has been quiet for --settle; the end is not waited with.
func TestSettling(t *testing.T) {
	for _, c := range []struct {
		settle settling
		events int // one in each second
		last   api.EventKind
		want   []time.Duration
	}{
		{settling{quiet: 2 * time.Second}, 5, api.EventContentsModified, []time.Duration{6 * time.Second}},
		{settling{quiet: 2 * time.Second, atMost: 4 * time.Second}, 7, api.EventContentsModified, []time.Duration{4 * time.Second, 8 * time.Second}},
		{settling{quiet: 2 * time.Second}, 3, api.EventHandleInvalid, []time.Duration{2 * time.Second}},
		{settling{}, 3, api.EventContentsModified, []time.Duration{0, time.Second, 2 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, w := newBacklog(c.settle), changing()
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			var taken []time.Duration
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					if _, err := b.take(ctx); err != nil {
						return
					}
					taken = append(taken, time.Since(began))
				}
			}()
			for i := range c.events {
				e := api.Event{Kind: api.EventContentsModified, Generation: api.Generation(i + 1)}
				if i == c.events-1 {
					e.Kind = c.last
				}
				if err := b.put(ctx, happening{Event: e, of: w}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			time.Sleep(time.Minute)
			cancel()
			<-ended
			if !slices.Equal(taken, c.want) {
				t.Errorf("%+v: taken after %v, want %v", c.settle, taken, c.want)
			}
		})
	}
}

// A backlog is bounded: who adds to a full one waits, until there is room or it is given up.
func TestBacklogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := newBacklog(settling{}), changing()
		lock := func(i int) happening {
			return happening{Event: api.Event{Kind: api.EventLockAcquired, Generation: api.Generation(i)}, of: w}
		}
		for i := range api.MaxEventQueue {
			if err := b.put(t.Context(), lock(i)); err != nil {
				t.Fatal(err)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.put(short, lock(-1)); err == nil {
			t.Error("a full backlog has taken more")
		}
		go func() {
			time.Sleep(time.Second)
			_, _ = b.take(t.Context())
		}()
		if err := b.put(t.Context(), lock(-2)); err != nil || len(b.waiting) != api.MaxEventQueue {
			t.Errorf("with room: %v, %d wait", err, len(b.waiting))
		}
	})
}
