package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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

// benchVerb returns the verb of a workload.
func benchVerb(name string) verb {
	return func(g *globals, cmd *cobra.Command) {
		b := &bench{globals: g, name: name, workload: workloads()[name], size: 128}
		b.addFlags(cmd.Flags())
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			b.out, b.err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := b.validate(cmd); err != nil {
				return err
			}
			return b.runBench(cmd.Context())
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

// runBench measures, and prints the results, whatever ended it.
func (b *bench) runBench(ctx context.Context) error {
	f, err := b.measure(ctx)
	if f != nil {
		err = errors.Join(err, b.report(f))
	}
	return interruptOr(ctx, err)
}

// measure prepares the work and returns the figures, nil if it measured nothing. It removes everything it
// created, or reports what is left.
func (b *bench) measure(ctx context.Context) (_ *benchFields, err error) {
	preparing, cancel := b.withTimeout(ctx)
	defer cancel()
	cell, err := client.Dial(preparing, b.config(b.base.Cell()))
	if err != nil {
		return nil, err
	}
	defer cell.Close()
	var clients []*client.Client
	defer func() { b.closeSessions(ctx, clients) }()
	for range b.clients {
		c, err := cell.NewSession(preparing, b.session())
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	if b.scratch, err = b.base.Join("bench-" + clients[0].Session().String()); err != nil {
		return nil, err
	}
	b.notice(b.err, b.announcement())
	if _, err := makeDirectory(preparing, clients[0], b.scratch, false); err != nil {
		return nil, err
	}
	defer func() {
		b.closeSessions(ctx, clients) // a change waits for clients that cache the node
		err = afterSteps(!b.removeScratch(ctx), err)
	}()
	ops := make([]load.Operation, len(clients))
	for i, c := range clients {
		if ops[i], err = b.workload.prepare(preparing, b, c, i); err != nil {
			return nil, fmt.Errorf("prepare client %d: %w", i+1, err)
		}
	}
	cancel()
	r, err := load.Run(ctx, load.Plan{Measure: b.duration, Rate: b.rate, Patience: b.patience}, ops)
	return b.figures(r, hasEnded(ctx)), err
}

// patience returns how long the last operations may take: --timeout, and after an interrupt less.
func (b *bench) patience(interrupted bool) (time.Duration, error) {
	bound := b.timeout
	if interrupted {
		bound = min(bound, closeBound)
	}
	return bound, outOfTime{bound}
}

// session returns the configuration of a client's session.
func (b *bench) session() client.SessionConfig {
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

func (b *bench) announcement() string {
	pace := "as fast as they can"
	if b.rate > 0 {
		pace = fmt.Sprintf("at most %g times a second together", b.rate)
	}
	return fmt.Sprintf("bench: %s %s in %v, %s, for %v; Ctrl-C ends it early",
		term.Counted(b.clients, "client"), b.workload.does(b), b.scratch, pace, b.duration)
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

type benchFields struct {
	Workload    string          `json:"workload"`
	Cell        string          `json:"cell"`
	Clients     int             `json:"clients"`
	DurationS   float64         `json:"duration_s"`
	Interrupted bool            `json:"interrupted"`
	Operations  []latencyFields `json:"operations"`
}

type latencyFields struct {
	Operation string       `json:"operation"`
	Count     int64        `json:"count"`
	RatePerS  float64      `json:"rate_per_s"`
	MinMS     milliseconds `json:"min_ms"`
	MeanMS    milliseconds `json:"mean_ms"`
	P50MS     milliseconds `json:"p50_ms"`
	P90MS     milliseconds `json:"p90_ms"`
	P99MS     milliseconds `json:"p99_ms"`
	P999MS    milliseconds `json:"p999_ms"`
	MaxMS     milliseconds `json:"max_ms"`
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

func (b *bench) figures(r load.Result, interrupted bool) *benchFields {
	w := b.workload
	f := &benchFields{Workload: b.name, Cell: b.base.Cell(), Clients: b.clients, DurationS: term.Seconds(r.Took), Interrupted: interrupted}
	measured := []*hdrhistogram.Histogram{r.Whole}
	if len(w.operations) == 2 {
		measured = []*hdrhistogram.Histogram{r.First, r.Second}
	}
	ms := func(d time.Duration) milliseconds { return milliseconds(float64(d) / float64(time.Millisecond)) }
	for i, l := range measured {
		o := latencyFields{Operation: w.operations[i], Count: r.Count()}
		at := func(percent float64) milliseconds { return ms(load.Time(l.ValueAtQuantile(percent))) }
		if o.Count > 0 {
			o.RatePerS = math.Round(10*float64(o.Count)/r.Took.Seconds()) / 10
			o.MinMS, o.MeanMS, o.MaxMS = ms(load.Time(l.Min())), ms(load.Time(l.Mean())), ms(load.Time(l.Max()))
			o.P50MS, o.P90MS, o.P99MS, o.P999MS = at(50), at(90), at(99), at(99.9)
		}
		f.Operations = append(f.Operations, o)
	}
	return f
}

func (b *bench) report(f *benchFields) error {
	return b.output.Show(b.out, f, func(p *term.Page) {
		p.Table(func(t *term.Table) {
			for _, o := range f.Operations {
				rate := fmt.Sprintf("%.0f", o.RatePerS)
				if o.RatePerS < 10 {
					rate = fmt.Sprintf("%.1f", o.RatePerS)
				}
				t.Add(o.Operation, o.Count, rate, o.MeanMS, o.P50MS, o.P90MS, o.P99MS, o.P999MS, o.MaxMS)
			}
		}, "OPERATION", "COUNT", "RATE/S", "MEAN", "P50", "P90", "P99", "P99.9", "MAX")
	})
}
