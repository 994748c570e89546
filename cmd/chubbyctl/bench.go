package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/load"
)

// Limits of a bench, so that a typing error does not overload a cell.
const (
	maxBenchClients  = 500 // sessions over one client.Cell's connections
	minBenchDuration = time.Second
	maxBenchDuration = 10 * time.Minute
)

type bench struct {
	*globals
	name     string // of the workload
	workload workload
	clients  int
	duration time.Duration
	prefix   string
	rate     float64 // operations a second of all clients; 0: as fast as possible
	size     term.Size
	locks    int // shared by the clients; 0: each has its own

	base     api.Path // the bench works below it
	scratch  api.Path // this bench's directory, in base
	out, err io.Writer
}

func benchVerb(name string) verb {
	return func(g *globals, cmd *cobra.Command) {
		b := &bench{globals: g, name: name, workload: workloads()[name], size: 128}
		b.addFlags(cmd.Flags())
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			b.out, b.err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := b.validate(cmd); err != nil {
				return err
			}
			r, interrupted, err := b.measure(cmd.Context())
			if r != nil {
				err = errors.Join(err, b.printFigures(*r, interrupted)) // whatever ended it
			}
			return interruptOr(cmd.Context(), err)
		}
	}
}

func (b *bench) addFlags(flags *pflag.FlagSet) {
	flags.IntVar(&b.clients, "clients", 8, fmt.Sprintf("`N` clients at once, 1 to %d", maxBenchClients))
	flags.DurationVar(&b.duration, "duration", 10*time.Second, fmt.Sprintf("for how long, %v to %v", minBenchDuration, maxBenchDuration))
	flags.Float64Var(&b.rate, "rate", 0, "at most `R` operations a second, of all clients together (default: as fast as they can)")
	flags.StringVar(&b.prefix, "prefix", "", "the directory below which the bench has one of its own (default: the root of the default cell)")
	switch b.workload.takes {
	case "size":
		flags.Var(&b.size, "size", "write files of so many bytes")
	case "locks":
		flags.IntVar(&b.locks, "locks", 0, "share `N` locks among the clients; 1: all want the same (default: a lock for each)")
	}
}

func (b *bench) validate(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch {
	case b.clients < 1 || b.clients > maxBenchClients:
		return usagef("--clients %d: want 1 to %d", b.clients, maxBenchClients)
	case b.duration < minBenchDuration || b.duration > maxBenchDuration:
		return usagef("--duration %v: want %v to %v", b.duration, minBenchDuration, maxBenchDuration)
	case given("rate") && !(b.rate > 0 && b.rate <= 1e6):
		return usagef("--rate %v: want more than 0 operations a second, at most 1000000", b.rate)
	case b.size > api.MaxContents:
		return usagef("--size %v: a file has at most %d bytes (256 KiB)", &b.size, api.MaxContents)
	case given("locks") && (b.locks < 1 || b.locks > b.clients):
		return usagef("--locks %d: want 1 to %d, the number of clients", b.locks, b.clients)
	}
	if b.locks == 0 {
		b.locks = b.clients
	}
	var where []string
	if given("prefix") {
		where = []string{b.prefix}
	}
	var err error
	b.base, err = b.pathOf(where)
	return err
}

// measure prepares the work and returns the figures, nil if it measured nothing. It removes everything it
// created, or reports what is left.
func (b *bench) measure(ctx context.Context) (_ *load.Result, interrupted bool, err error) {
	preparing, cancel := b.withTimeout(ctx)
	defer cancel()
	cell, err := client.Dial(preparing, b.config(b.base.Cell()))
	if err != nil {
		return nil, false, err
	}
	defer cell.Close()
	var clients []*client.Client
	defer func() { b.closeSessions(ctx, clients) }()
	for range b.clients {
		c, err := cell.NewSession(preparing, b.sessionConfig())
		if err != nil {
			return nil, false, err
		}
		clients = append(clients, c)
	}
	if b.scratch, err = b.base.Join("bench-" + clients[0].Session().String()); err != nil {
		return nil, false, err
	}
	pace := "as fast as they can"
	if b.rate > 0 {
		pace = fmt.Sprintf("at most %g times a second together", b.rate)
	}
	b.notice(b.err, fmt.Sprintf("bench: %s %s in %v, %s, for %v; Ctrl-C ends it early",
		term.Counted(b.clients, "client"), b.workload.does(b), b.scratch, pace, b.duration))
	if _, err := makeDirectory(preparing, clients[0], b.scratch, false); err != nil {
		return nil, false, err
	}
	defer func() {
		b.closeSessions(ctx, clients) // a change waits for clients that cache the node
		err = afterSteps(!b.removeScratch(ctx), err)
	}()
	ops := make([]load.Operation, len(clients))
	for i, c := range clients {
		if ops[i], err = b.workload.prepare(preparing, b, c, i); err != nil {
			return nil, false, fmt.Errorf("prepare client %d: %w", i+1, err)
		}
	}
	cancel()
	patience := func(interrupted bool) (time.Duration, error) { // for the last operations
		bound := b.timeout
		if interrupted {
			bound = min(bound, closeBound)
		}
		return bound, outOfTime{bound}
	}
	r, err := load.Run(ctx, load.Plan{Measure: b.duration, Rate: b.rate, Patience: patience}, ops)
	return &r, hasEnded(ctx), err
}

func (b *bench) sessionConfig() client.SessionConfig {
	s := b.config(b.base.Cell()).Session()
	s.NoCache = !b.workload.caches
	return s
}

// closeSessions ends the clients' sessions concurrently, because each may wait for a silent cell. It is
// idempotent.
func (b *bench) closeSessions(ctx context.Context, clients []*client.Client) {
	var parting sync.WaitGroup
	for _, c := range clients {
		parting.Go(func() { b.closeSession(ctx, c) })
	}
	parting.Wait()
}

// removeScratch removes the scratch directory, also after an interrupt, and reports whether it is gone. Its
// files went with the sessions, unless the cell could not be told that these have ended.
func (b *bench) removeScratch(ctx context.Context) bool {
	err := b.withSession(context.WithoutCancel(ctx), b.base.Cell(), func(ctx context.Context, c *client.Client) error {
		h, err := c.Open(ctx, b.scratch.String(), client.OpenOptions{Read: true, Write: true, Kind: api.Directory})
		if err != nil {
			return err
		}
		children, err := h.ReadDir(ctx)
		if err != nil {
			return err
		}
		for _, child := range children {
			file, err := c.Open(ctx, child.Path.String(), client.OpenOptions{Write: true})
			if err == nil {
				err = errors.Join(file.Delete(ctx), file.Close(ctx))
			}
			if err != nil && !errors.Is(err, api.NotFound) {
				return err
			}
		}
		return h.Delete(ctx)
	})
	if err == nil || api.CodeOf(err) == api.NotFound {
		return true
	}
	b.notice(b.err, fmt.Sprintf("%v could not be removed, and remains: %v", b.scratch, err))
	return false
}

// milliseconds is a duration, exact to a tenth of a microsecond.
type milliseconds float64

func (ms milliseconds) String() string {
	d := time.Duration(math.Round(float64(ms)*1e4)) * 100 * time.Nanosecond
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

// printFigures prints the figures of a load.
func (b *bench) printFigures(r load.Result, interrupted bool) error {
	measured := []*hdrhistogram.Histogram{r.Whole}
	if len(b.workload.operations) == 2 {
		measured = []*hdrhistogram.Histogram{r.First, r.Second}
	}
	names := []string{"min_ms", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms"}
	var operations []term.Fields
	var rows [][]any
	for i, l := range measured {
		rate, times := 0.0, make([]any, len(names))
		at := func(percent float64) int64 { return l.ValueAtQuantile(percent) }
		for j, units := range []int64{l.Min(), int64(l.Mean()), at(50), at(90), at(99), at(99.9), l.Max()} {
			if times[j] = milliseconds(0); r.Count() > 0 {
				times[j] = milliseconds(float64(load.Time(units)) / float64(time.Millisecond))
			}
		}
		if r.Count() > 0 {
			rate = math.Round(10*float64(r.Count())/r.Took.Seconds()) / 10
		}
		f := term.Fields{"operation", b.workload.operations[i], "count", r.Count(), "rate_per_s", rate}
		for j, name := range names {
			f = append(f, name, times[j])
		}
		operations = append(operations, f)
		shown := fmt.Sprintf("%.0f", rate)
		if rate < 10 {
			shown = fmt.Sprintf("%.1f", rate)
		}
		rows = append(rows, append([]any{b.workload.operations[i], r.Count(), shown}, times[1:]...))
	}
	fields := term.Fields{
		"workload", b.name, "cell", b.base.Cell(), "clients", b.clients, "duration_s", term.Seconds(r.Took), "interrupted", interrupted,
		"operations", operations,
	}
	return b.output.Show(b.out, fields, func(p *term.Page) {
		p.Table(func(t *term.Table) {
			for _, row := range rows {
				t.Add(row...)
			}
		}, "OPERATION", "COUNT", "RATE/S", "MEAN", "P50", "P90", "P99", "P99.9", "MAX")
	})
}

type workload struct {
	takes      string   // its own flag: "size" or "locks"; may be empty
	caches     bool     // the clients cache what they read
	operations []string // what is measured: one operation, or its two parts
	does       func(b *bench) string
	// prepare creates what the i-th client needs, and returns what it repeats.
	prepare func(ctx context.Context, b *bench, c *client.Client, i int) (load.Operation, error)
}

func workloads() map[string]workload {
	return map[string]workload{
		"locks": {
			takes:      "locks",
			operations: []string{"acquire", "release"},
			does: func(b *bench) string {
				if b.locks == b.clients {
					return "acquire and release a lock of their own"
				}
				return fmt.Sprintf("acquire and release %s", term.Counted(b.locks, "lock"))
			},
			prepare: prepareLocks,
		},
		"writes": {
			takes:      "size",
			operations: []string{"write"},
			does:       func(b *bench) string { return fmt.Sprintf("write files of %d bytes", int64(b.size)) },
			prepare:    prepareWrites,
		},
		"reads": {
			takes:      "size",
			operations: []string{"read"},
			does:       func(b *bench) string { return fmt.Sprintf("read a file of %d bytes from the master", int64(b.size)) },
			prepare:    prepareReads,
		},
		"cached": {
			takes:      "size",
			caches:     true,
			operations: []string{"cached read"},
			does:       func(b *bench) string { return fmt.Sprintf("read a file of %d bytes from their caches", int64(b.size)) },
			prepare:    prepareReads,
		},
		"sessions": {
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
	opts.Create, opts.Kind, opts.Ephemeral = client.File, api.File, true // the end of the sessions removes it
	return c.Open(ctx, p.String(), opts)
}

func (b *bench) payload() []byte { return bytes.Repeat([]byte("x"), int(b.size)) }

func prepareLocks(ctx context.Context, b *bench, c *client.Client, i int) (load.Operation, error) {
	h, err := b.openScratch(ctx, c, strconv.Itoa(i%b.locks), client.OpenOptions{Write: true})
	return func(ctx context.Context, part func()) error {
		lock, err := h.Acquire(ctx, api.Exclusive, client.Reason("chubbyctl bench"))
		if err != nil {
			return err
		}
		part()
		return lock.Release(ctx)
	}, err
}

func prepareWrites(ctx context.Context, b *bench, c *client.Client, i int) (load.Operation, error) {
	h, err := b.openScratch(ctx, c, strconv.Itoa(i), client.OpenOptions{Write: true})
	contents := b.payload()
	return func(ctx context.Context, _ func()) error {
		_, err := h.SetContents(ctx, contents)
		return err
	}, err
}

func prepareReads(ctx context.Context, b *bench, c *client.Client, _ int) (load.Operation, error) {
	h, err := b.openScratch(ctx, c, "file", client.OpenOptions{Read: true, Contents: b.payload()})
	if err == nil {
		_, _, err = h.Contents(ctx) // fills the cache, if any
	}
	return func(ctx context.Context, _ func()) error {
		got, _, err := h.Contents(ctx)
		if err == nil && len(got) != int(b.size) {
			err = fmt.Errorf("%s has %d bytes, and %d were written", h.Path(), len(got), b.size)
		}
		return err
	}, err
}

func prepareSessions(_ context.Context, b *bench, c *client.Client, _ int) (load.Operation, error) {
	return func(ctx context.Context, part func()) error {
		opened, err := c.Cell().NewSession(ctx, b.sessionConfig())
		if err != nil {
			return err
		}
		part()
		return opened.Close(ctx)
	}, nil
}
