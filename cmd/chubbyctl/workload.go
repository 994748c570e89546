package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// step does a workload's operations once, each by calling timed.
type step func(ctx context.Context, timed timer) error

// timer runs and times one operation.
type timer func(operation string, f func() error) error

type workload struct {
	name, short, long, example string
	takes                      string   // its own flag: "size" or "locks"; may be empty
	caches                     bool     // the clients cache what they read
	operations                 []string // measured, in the order of the report
	does                       func(b *bench) string
	// prepare creates what the i-th client needs, and returns its step.
	prepare func(ctx context.Context, b *bench, c *client.Client, i int) (step, error)
}

func workloads() []workload {
	return []workload{
		{
			name:  "locks",
			short: "Acquire and release locks",
			takes: "locks",
			long: `locks has each client take a lock and give it back, again and again: each a lock of
its own, or with --locks 1 all the same, which measures how fast a lock goes from one
holder to the next.`,
			example:    "  chubbyctl bench locks\n  chubbyctl bench locks --locks 1 --clients 20",
			operations: []string{"acquire", "release"},
			does: func(b *bench) string {
				if b.locks == b.clients {
					return "acquire and release a lock of their own"
				}
				return fmt.Sprintf("acquire and release %s", term.Counted(b.locks, "lock"))
			},
			prepare: prepareLocks,
		},
		{
			name:  "writes",
			short: "Write files",
			takes: "size",
			long: `writes has each client write a file of its own, the whole of it, again and again.
Every write goes through the log of the cell, to the disks of a majority.`,
			example:    "  chubbyctl bench writes --size 4KiB --clients 32",
			operations: []string{"write"},
			does:       func(b *bench) string { return fmt.Sprintf("write files of %d bytes", int64(b.size)) },
			prepare:    prepareWrites,
		},
		{
			name:  "reads",
			short: "Read a file from the master",
			takes: "size",
			long: `reads has all clients read one file, without a cache: each read asks the master, and
that a majority whether it is still the master.`,
			example:    "  chubbyctl bench reads --clients 32 --duration 30s",
			operations: []string{"read"},
			does:       func(b *bench) string { return fmt.Sprintf("read a file of %d bytes from the master", int64(b.size)) },
			prepare:    prepareReads,
		},
		{
			name:   "cached",
			short:  "Read a file from the clients' caches",
			takes:  "size",
			caches: true,
			long: `cached has all clients read one file, with a cache: except for the first of each, the
reads are answered by the client library and ask nobody. It measures this machine.`,
			example:    "  chubbyctl bench cached --clients 2",
			operations: []string{"cached read"},
			does:       func(b *bench) string { return fmt.Sprintf("read a file of %d bytes from their caches", int64(b.size)) },
			prepare:    prepareReads,
		},
		{
			name:  "sessions",
			short: "Open and close sessions",
			long: `sessions has each client open a session and close it, again and again, as programs do
that run for a moment only; each is two entries in the log of the cell.`,
			example:    "  chubbyctl bench sessions --rate 100",
			operations: []string{"open", "close"},
			does:       func(*bench) string { return "open and close sessions" },
			prepare:    prepareSessions,
		},
	}
}

func (b *bench) openScratch(ctx context.Context, c *client.Client, name string, opts client.OpenOptions) (*client.Handle, error) {
	p, err := b.scratch.Join(name)
	if err != nil {
		return nil, err
	}
	opts.Create, opts.Kind = client.File, api.File
	return c.Open(ctx, p.String(), opts)
}

func (b *bench) contents() []byte { return bytes.Repeat([]byte("x"), int(b.size)) }

func prepareLocks(ctx context.Context, b *bench, c *client.Client, i int) (step, error) {
	h, err := b.openScratch(ctx, c, strconv.Itoa(i%b.locks), client.OpenOptions{Write: true})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, timed timer) error {
		var lock *client.Lock
		err := timed("acquire", func() (err error) {
			lock, err = h.Acquire(ctx, api.Exclusive, client.Reason("chubbyctl bench"))
			return err
		})
		if err != nil {
			return err
		}
		return timed("release", func() error { return lock.Release(ctx) })
	}, nil
}

func prepareWrites(ctx context.Context, b *bench, c *client.Client, i int) (step, error) {
	h, err := b.openScratch(ctx, c, strconv.Itoa(i), client.OpenOptions{Write: true})
	if err != nil {
		return nil, err
	}
	contents := b.contents()
	return func(ctx context.Context, timed timer) error {
		return timed("write", func() error {
			_, err := h.SetContents(ctx, contents)
			return err
		})
	}, nil
}

func prepareReads(ctx context.Context, b *bench, c *client.Client, _ int) (step, error) {
	h, err := b.openScratch(ctx, c, "file", client.OpenOptions{Read: true, Contents: b.contents()})
	if err != nil {
		return nil, err
	}
	if _, _, err := h.Contents(ctx); err != nil { // fills the cache, if any
		return nil, err
	}
	return func(ctx context.Context, timed timer) error {
		return timed(b.workload.operations[0], func() error {
			got, _, err := h.Contents(ctx)
			if err == nil && len(got) != int(b.size) {
				err = fmt.Errorf("%s has %d bytes, and %d were written", h.Path(), len(got), b.size)
			}
			return err
		})
	}, nil
}

func prepareSessions(_ context.Context, b *bench, c *client.Client, _ int) (step, error) {
	return func(ctx context.Context, timed timer) error {
		var opened *client.Client
		err := timed("open", func() (err error) {
			opened, err = c.Cell().NewSession(ctx, b.session())
			return err
		})
		if err != nil {
			return err
		}
		return timed("close", func() error { return opened.Close(ctx) })
	}, nil
}

// Latencies range from 100 ns to ten minutes, with three digits.
const (
	latencyTick = 100 * time.Nanosecond
	maxLatency  = 10 * time.Minute
)

// latencies are those of one client, by operation.
type latencies map[string]*hdrhistogram.Histogram

func newLatencies(operations []string) latencies {
	l := latencies{}
	for _, name := range operations {
		l[name] = hdrhistogram.New(1, int64(maxLatency/latencyTick), 3)
	}
	return l
}

// errTimeUp is the cause that ends the clients' loops.
var errTimeUp = errors.New("the time of the bench is up")

// generateLoad lets all clients repeat their steps until the time is up, an interrupt, or the first error. It
// returns the figures until then, after all its goroutines have ended.
func (b *bench) generateLoad(ctx context.Context, steps []step) (*benchFields, error) {
	watch := stopwatch()
	working, finish := context.WithCancelCause(context.WithoutCancel(ctx))
	defer finish(nil)
	begin, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	time.AfterFunc(b.duration, func() { stop(errTimeUp) })
	// Running operations may end within --timeout; after an interrupt, sooner.
	defer context.AfterFunc(begin, func() {
		bound := b.timeout
		if ctx.Err() != nil {
			bound = min(bound, closeBound)
		}
		time.AfterFunc(bound, func() { finish(outOfTime{bound}) })
	})()
	all := make([]latencies, len(steps))
	errs := make([]error, len(steps))
	var wait sync.WaitGroup
	for i, s := range steps {
		all[i] = newLatencies(b.workload.operations)
		wait.Go(func() {
			if errs[i] = b.repeatStep(begin, working, s, all[i], b.pace(i), watch); errs[i] != nil {
				errs[i] = fmt.Errorf("client %d: %w", i+1, errs[i])
				stop(errs[i])
			}
		})
	}
	wait.Wait()
	elapsed, sum := watch(), newLatencies(b.workload.operations)
	f := &benchFields{
		Workload: b.workload.name, Cell: b.base.Cell(), Clients: b.clients, DurationS: term.Seconds(elapsed), Interrupted: ctx.Err() != nil,
	}
	for _, name := range b.workload.operations {
		for _, l := range all {
			sum[name].Merge(l[name])
		}
		f.Operations = append(f.Operations, newLatencyFields(name, sum[name], elapsed))
	}
	if f.Interrupted {
		return f, context.Cause(ctx)
	}
	return f, cmp.Or(errs...) // mostly all clients have the same
}

// pace returns when a client's nth step is due, so that all clients' steps are evenly spread; nil without
// --rate.
func (b *bench) pace(i int) func(n int64) time.Duration {
	if b.rate == 0 {
		return nil
	}
	every := float64(time.Second) / b.rate
	return func(n int64) time.Duration {
		return time.Duration(every * (float64(n)*float64(b.clients) + float64(i)))
	}
}

// repeatStep repeats a client's step until begin ends. With a pace, the step's first operation is timed from
// when the step was due.
func (b *bench) repeatStep(begin, working context.Context, s step, l latencies, due func(int64) time.Duration, watch func() time.Duration) error {
	for n := int64(0); begin.Err() == nil; n++ {
		from := watch()
		if due != nil {
			if from = due(n); from >= b.duration {
				<-begin.Done() // the rate is over the whole duration
				return nil
			}
			select {
			case <-begin.Done():
				return nil
			case <-time.After(from - watch()):
			}
		}
		err := s(working, func(operation string, f func() error) error {
			if err := f(); err != nil {
				return err
			}
			ended := watch()
			took := ended - from
			from = ended
			return l[operation].RecordValue(int64(max(latencyTick, min(took, maxLatency)) / latencyTick))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
