package chubbystorage_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	chubbystorage "github.com/chubbylock/chubby/contrib/certmagic"
)

// value returns a large value that says which it is.
func value(id byte, chunks int) []byte {
	return bytes.Repeat([]byte{id}, chunks*chunk-10)
}

// sets returns how many sets of chunks a key has.
func (w *world) sets(c *client.Client, key string) int {
	all := map[string]bool{}
	for _, path := range w.chunks(c, key) {
		all[path[:strings.LastIndexByte(path, '/')]] = true
	}
	return len(all)
}

var full = flag.Bool("full", false, "cut writers off after each of their calls, not each third")

// A writer is cut off for ever after each third of its calls, while it replaces a large value by another, or by a small
// one, or stores the first, or deletes it. Others read the old or the new value, at once; the next writer is not hindered
// for longer than a lease, and removes what is left.
func TestDeadWriter(t *testing.T) {
	t.Parallel() // with TestKills, which mostly waits
	for what, act := range map[string]struct {
		old, new []byte // nil: none
	}{
		"a large value by a large one": {value('o', 2), value('n', 2)},
		"a large value by a small one": {value('o', 2), []byte("n")},
		"a small value by a large one": {[]byte("o"), value('n', 2)},
		"the first":                    {nil, value('n', 2)},
		"the last":                     {value('o', 2), nil},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				const calls = 52 // at most so many; it takes 47
				step := 3
				if *full {
					step = 1
				}
				other, operator := w.host("other"), w.operator()
				var all sync.WaitGroup
				var finished atomic.Int64
				for point := 0; point < calls; point += step {
					d := death{world: w, other: other, operate: operator, point: point + 1, key: fmt.Sprintf("%d/k", point), old: act.old, new: act.new}
					all.Go(func() { // beside the others, so that their leases end at the same time
						if d.run() {
							finished.Add(1)
						}
					})
				}
				all.Wait()
				if n := finished.Load(); n == 0 || n > int64(calls/step/2) {
					t.Errorf("%d of %d writers were not cut off", n, calls/step)
				}
			})
		})
	}
}

// death is a writer that is cut off after so many calls.
type death struct {
	*world
	other    *chubbystorage.Storage
	operate  *client.Client
	point    int
	key      string
	old, new []byte
}

// run reports whether the writer has finished before.
func (d death) run() (finished bool) {
	var calls atomic.Int64
	var began, dead atomic.Bool
	host := "writer-" + strconv.Itoa(d.point)
	writer := d.host(host, func(c *client.Config) {
		c.NoCache = true
		c.Dialer = d.cell.Lossy(host, func(method string) bool {
			if began.Load() && !strings.Contains(method, "KeepAlive") && calls.Add(1) == int64(d.point) {
				dead.Store(true)
			}
			return dead.Load()
		})
	})
	if d.old != nil {
		wants(d, "Store the old value", writer.Store(d.ctx, d.key, d.old), api.OK)
	}
	began.Store(true)
	ctx, cancel := context.WithTimeout(d.ctx, 500*time.Millisecond)
	defer cancel()
	var err error
	if d.new != nil {
		err = writer.Store(ctx, d.key, d.new)
	} else {
		err = writer.Delete(ctx, path.Dir(d.key))
	}
	finished = !dead.Load()
	d.cell.Cut(host)
	if finished {
		wants(d, "without a fault", err, api.OK)
	}
	d.check(d.other)
	return finished
}

// check reads and writes as another, after the death of the writer.
func (d death) check(s *chubbystorage.Storage) {
	began := time.Now()
	got, err := s.Load(d.ctx, d.key)
	isOld := bytes.Equal(got, d.old) && (d.old != nil) == (err == nil)
	isNew := bytes.Equal(got, d.new) && (d.new != nil) == (err == nil)
	if !isOld && !isNew || err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.Errorf("dead after call %d: Load: %d bytes, %v", d.point, len(got), err)
	}
	if took := time.Since(began); took > 500*time.Millisecond {
		d.Errorf("dead after call %d: the reader waited for %v", d.point, took)
	}
	next := value('x', 1+d.point%2)
	if d.point%3 == 0 {
		next = []byte("x")
	}
	began = time.Now()
	wants(d, "Store by the next", s.Store(d.ctx, d.key, next), api.OK)
	if took := time.Since(began); took > 4*time.Second {
		d.Errorf("dead after call %d: the next writer waited for %v; want the lease at most", d.point, took)
	}
	if got, err := s.Load(d.ctx, d.key); err != nil || !bytes.Equal(got, next) {
		d.Errorf("dead after call %d: Load of the next value: %d bytes, %v", d.point, len(got), err)
	}
	if n := d.sets(d.operate, d.key); len(next) < chunk && n > 0 || n > 1 {
		d.Errorf("dead after call %d: %d sets of chunks are left", d.point, n)
	}
}

// Several writers replace large and small values of a key at the same time, and delete it. Readers have each value whole,
// and in the end nothing is left.
func TestManyWriters(t *testing.T) {
	inWorld(t, func(w *world) {
		var writers, readers sync.WaitGroup
		done := make(chan struct{})
		for i := range 3 {
			s := w.host(string(rune('a' + i)))
			r := rand.New(rand.NewPCG(uint64(i), 7))
			writers.Go(func() {
				for range 12 {
					id := byte(r.IntN(256))
					switch r.IntN(6) {
					case 0:
						wants(t, "Store", s.Store(w.ctx, "d/k", bytes.Repeat([]byte{id}, 10)), api.OK)
					case 1:
						wants(t, "Delete", s.Delete(w.ctx, "d/k"), api.OK)
					case 2:
						if err := s.Delete(w.ctx, "d"); err != nil && !errors.Is(err, api.NotEmpty) { // the others are quicker
							t.Error(err)
						}
					default:
						wants(t, "Store", s.Store(w.ctx, "d/k", value(id, 2+r.IntN(3))), api.OK)
					}
				}
			})
			readers.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-done:
						return
					case <-time.After(rand.N(300 * time.Microsecond)):
					}
					got, err := s.Load(w.ctx, "d/k")
					if err != nil && api.CodeOf(err) != api.NotFound || len(got) > 0 && bytes.Count(got, got[:1]) != len(got) {
						t.Errorf("Load: %d bytes, %v", len(got), err)
					}
				}
			})
		}
		writers.Wait()
		close(done)
		readers.Wait()
		wants(t, "Delete", w.host("last").Delete(w.ctx, "d"), api.OK)
		if all := w.nodes(w.operator(), root); len(all) != 1 {
			t.Errorf("%q are left", all)
		}
	})
}

// A value is replaced when a reader has read its head, and not its chunks: the reader gets the new one.
func TestReplacedWhileReading(t *testing.T) {
	inWorld(t, func(w *world) {
		writer := w.host("writer")
		var armed atomic.Bool
		reader := w.host("reader", func(c *client.Config) {
			c.NoCache = true
			c.Dialer = w.cell.Lossy("reader", func(method string) bool {
				if strings.HasSuffix(method, "/GetContentsAndStat") && armed.CompareAndSwap(true, false) {
					wants(t, "Store", writer.Store(w.ctx, "k", value('n', 3)), api.OK)
				}
				return false
			})
		})
		wants(t, "Store", writer.Store(w.ctx, "k", value('o', 2)), api.OK)
		armed.Store(true)
		if got, err := reader.Load(w.ctx, "k"); err != nil || !bytes.Equal(got, value('n', 3)) {
			t.Errorf("Load: %d bytes, %v", len(got), err)
		}
		if armed.Load() {
			t.Error("it was not replaced meanwhile")
		}
	})
}

// stopWriter has a writer with a long lease store a large value of "k", in the place of another one unless it is the first,
// and stops it when all chunks are there and the head is not. goOn continues it.
func (w *world) stopWriter(first bool) (goOn chan struct{}, done chan error) {
	w.Helper()
	// Get, Acquire, Get, List, MkdirAll and the three chunks open a node each; then the file is read and replaced. The first
	// writer also opens the directory of the chunks, and once more the lock in it.
	last, chunks := int64(9), 5
	if first {
		last, chunks = 11, 3
	}
	stopped, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var opened atomic.Int64
	var armed atomic.Bool
	writer := w.host("writer", func(c *client.Config) {
		c.Lease, c.NoCache = time.Minute, true
		c.Dialer = w.cell.Lossy("writer", func(method string) bool {
			if armed.Load() && strings.HasSuffix(method, "/Open") && opened.Add(1) == last {
				close(stopped)
				<-goOn
			}
			return false
		})
	})
	wants(w, "Store", writer.Store(w.ctx, "k", value('o', 2)), api.OK)
	if first {
		wants(w, "Delete", writer.Delete(w.ctx, "k"), api.OK)
	}
	armed.Store(true)
	go func() { done <- writer.Store(w.ctx, "k", value('w', 3)) }()
	<-stopped
	if n := len(w.chunks(w.operator(), "k")); n != chunks {
		w.Errorf("the writer was stopped with %d chunks; want %d, with those of the value before", n, chunks)
	}
	return goOn, done
}

// Another writer does not remove the chunks of one that is slow.
func TestWritersWait(t *testing.T) {
	inWorld(t, func(w *world) {
		goOn, done := w.stopWriter(false)
		next := w.host("next")
		for what, act := range map[string]func(ctx context.Context) error{
			"Store a large value": func(ctx context.Context) error { return next.Store(ctx, "k", value('x', 2)) },
			"Delete":              func(ctx context.Context) error { return next.Delete(ctx, "k") },
		} {
			ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
			if err := act(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s while another writes: %v", what, err)
			}
			cancel()
		}
		close(goOn)
		wants(t, "Store by the writer", <-done, api.OK)
		if got, err := next.Load(w.ctx, "k"); err != nil || !bytes.Equal(got, value('w', 3)) {
			t.Errorf("Load: %d bytes, %v", len(got), err)
		}
	})
}

// An operator takes a writer's lock away at once, while the writer is stopped before its last step. The next writer removes
// its chunks, whatever it stores itself; and the head that the first writes then does not name them.
func TestBrokenWriterLock(t *testing.T) {
	for chunks, stored := range map[int][]byte{2: value('x', 2), 0: []byte("x")} {
		t.Run(fmt.Sprint(chunks, " chunks"), func(t *testing.T) {
			inWorld(t, func(w *world) {
				goOn, done := w.stopWriter(false)
				wants(t, "BreakLock", w.operator().BreakLock(w.ctx, root+"/keys/k%c/lock", "test", true), api.OK)
				next := w.host("next")
				wants(t, "Store by the next", next.Store(w.ctx, "k", stored), api.OK)
				if n := len(w.chunks(w.operator(), "k")); n != chunks {
					t.Errorf("%d chunks are left by the next; want its own %d", n, chunks)
				}
				close(goOn)
				wants(t, "Store by the writer", <-done, api.OK)
				if got, err := next.Load(w.ctx, "k"); err != nil || !bytes.Equal(got, value('w', 3)) {
					t.Errorf("Load: %d bytes, %v", len(got), err)
				}
			})
		})
	}
}

// The same of the first value of a key, and the next writer, which has removed its chunks, has died since.
func TestBrokenFirstWriterLock(t *testing.T) {
	inWorld(t, func(w *world) {
		goOn, done := w.stopWriter(true)
		operator := w.operator()
		wants(t, "BreakLock", operator.BreakLock(w.ctx, root+"/keys/k%c/lock", "test", true), api.OK)
		for _, chunk := range w.chunks(operator, "k") {
			wants(t, "Delete", operator.Delete(w.ctx, chunk), api.OK)
		}
		close(goOn)
		wants(t, "Store by the writer", <-done, api.OK)
		if got, err := w.host("next").Load(w.ctx, "k"); err != nil || !bytes.Equal(got, value('w', 3)) {
			t.Errorf("Load: %d bytes, %v", len(got), err)
		}
	})
}

// Answers get lost. Each call is done once, or as if it were.
func TestLostAnswers(t *testing.T) {
	files := &certmagic.FileStorage{Path: t.TempDir()}
	inWorld(t, func(w *world) {
		r := rand.New(rand.NewPCG(3, 3))
		var mu sync.Mutex // guards r
		s := w.host("one", func(c *client.Config) {
			c.Lease, c.Grace, c.CallTimeout = 20*time.Second, time.Minute, 100*time.Millisecond
			c.Dialer = w.cell.Lossy("one", func(string) bool {
				mu.Lock()
				defer mu.Unlock()
				return r.IntN(20) == 0
			})
		})
		likeFiles(w.ctx, t, s, files, rand.New(rand.NewPCG(1, 1)), 60)
	})
}
