package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"os"
	"slices"
	"strconv"
)

//go:embed pairs.md.tmpl
var pairsTemplate string

//go:embed measuring.md.tmpl
var measuringTemplate string

// runPairs measures two systems that both run all the time, one after the other and then the other
// way round, o.rounds times a row. A machine that others share is by a third faster in one minute than
// in the next: a pair takes seconds, so what slows one half most often slows the other half as much,
// and the median of the pairs' ratios says more than the ratio of two medians. One start of a system is faster than another of
// the same, for as long as it runs, by more than a few percent: o.starts is how many of both are measured.
func runPairs(ctx context.Context, o options, dir string, results *record, out io.Writer) error {
	list := slices.DeleteFunc(rows(o), func(r row) bool { return r.op == nil || r.limit > 0 })
	if len(list) == 0 {
		return fmt.Errorf("-rows %q: no row that can be repeated has that in its name", o.rows)
	}
	for start := range max(1, o.starts) {
		if o.starts > 1 {
			fmt.Fprintf(os.Stderr, "start %d of %d\n", start+1, o.starts)
		}
		if err := measureStart(ctx, o, dir, list, start, results); err != nil {
			return err
		}
	}
	return errors.Join(results.reportPairs(o, out), results.checkPairs(o))
}

// measureStart starts both systems, each first in half of the starts, and measures all rows on them. Of a cell that measures and one
// that does not one is started, which is switched from one to the other.
func measureStart(ctx context.Context, o options, dir string, list []row, start int, results *record) (err error) {
	both := make([]*running, len(o.systems))
	if slices.Equal(o.systems, []string{unmeasured, traced}) {
		var one *running
		if one, err = startRunning(ctx, o, switched, dir, maxClients(list)); err != nil {
			return fmt.Errorf("%s: %w", switched, err)
		}
		defer func() { err = errors.Join(err, one.stop(ctx)) }()
		both = statesOf(one)
	} else {
		for i := range both {
			i = (i + start) % len(both)
			if both[i], err = startRunning(ctx, o, o.systems[i], dir, maxClients(list)); err != nil {
				return fmt.Errorf("%s: %w", o.systems[i], err)
			}
			defer func() { err = errors.Join(err, both[i].stop(ctx)) }()
		}
	}
	for at, r := range list {
		if start == 0 && at == 0 {
			for i, name := range o.systems {
				results.addSystem(name, both[i].Version())
			}
		}
		if o.starts <= 1 {
			fmt.Fprintf(os.Stderr, "row %d of %d: %s\n", at+1, len(list), r)
		}
		if err := measurePairs(ctx, o, r, both, start, results); err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
	}
	return nil
}

// statesOf returns a cell whose measuring can be switched off as two systems: without, and with.
func statesOf(one *running) []*running {
	var both []*running
	for i, name := range []string{unmeasured, traced} {
		state := *one
		state.name = name
		if c, ok := one.system.(*chubby); ok {
			state.enter = func(ctx context.Context) error { return c.measure(ctx, i == 1) }
		}
		both = append(both, &state)
	}
	return both
}

// openFactor is how much longer a row is measured in pairs whose operations begin at set times, and how many pairs
// fewer there are: what was due while it was warmed up would else be a large part of it.
const openFactor = 5

// moreRounds is how many times o.rounds a row is measured at most, as long as its interval does not say on which side of the
// limit it is.
const moreRounds = 4

// measurePairs measures a row on both systems, o.rounds times or more, each first in half of the pairs.
func measurePairs(ctx context.Context, o options, r row, both []*running, start int, results *record) error {
	k := key{Row: r.name, Clients: r.clients}
	if r.rate > 0 {
		o.measure, o.rounds = openFactor*o.measure, max(1, o.rounds/openFactor)
	}
	order := slices.Clone(both)
	if start%2 > 0 {
		slices.Reverse(order)
	}
	for n := 0; n < o.rounds || o.starts <= 1 && n < moreRounds*o.rounds && results.isUndecided(k, o); n++ {
		for _, s := range order {
			ops, ok := operations(r, s.workers)
			if !ok {
				return nil
			}
			if s.enter != nil {
				if err := s.enter(ctx); err != nil {
					return err
				}
			}
			measured, err := runLoad(ctx, r.plan(o, s), ops)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			measured.Start = start
			results.add(k, s.name, measured)
		}
		slices.Reverse(order)
	}
	return nil
}

// isUndecided reports whether an interval that is judged has its limit in it. More pairs make it narrower; none is left out.
func (r *record) isUndecided(k key, o options) bool {
	at := slices.IndexFunc(r.pairs(), func(c ratios) bool { return c.key == k })
	if at < 0 {
		return false
	}
	c := r.pairs()[at]
	if isOpenLoop(k) {
		return c.processor.isAround(o.processorAtMost)
	}
	return c.time.isAround(o.atMost)
}

// ratios is by what the second system of a pair needs more than the first: 1 is as much.
type ratios struct {
	key
	first, second sample // medians
	pairs         int
	time          estimate // for an operation
	processor     estimate // time of servers and client, for an operation
	sent          float64  // bytes, over all pairs
}

// estimate is the median of the starts, or of the pairs if there was one start, and an interval that has the true median with
// 95 % certainty.
type estimate struct{ median, low, high float64 }

func estimateOf(each []float64) estimate {
	low, high := certainty(each)
	return estimate{median(each), low, high}
}

// isAround reports whether the interval has a limit in it; 0 is no limit.
func (e estimate) isAround(limit float64) bool { return limit > 0 && e.low <= limit && limit < e.high }

func (e estimate) interval() string { return fmt.Sprintf("%.2f to %.2f", e.low, e.high) }

// pairs compares the two systems of a run, row by row.
func (r *record) pairs() []ratios {
	var list []ratios
	names := r.names()
	for _, k := range r.keys() {
		first, second := r.find(k, names[0]), r.find(k, names[1])
		if first == nil || second == nil || len(first.Rounds) != len(second.Rounds) {
			continue
		}
		c := ratios{key: k, first: medianOf(first.Rounds), second: medianOf(second.Rounds), pairs: len(first.Rounds)}
		c.time = estimateOf(byStart(first, second, func(a, b sample) float64 { return timeRatio(k, a, b) }))
		c.processor = estimateOf(byStart(first, second, processorRatio))
		c.sent = ratioOf(first, second, func(s sample) int64 { return s.Bytes })
		list = append(list, c)
	}
	return list
}

// byStart compares the pairs of a row: the median of each start, or all if there was one.
func byStart(first, second *result, compare func(a, b sample) float64) []float64 {
	var all []float64
	starts := map[int][]float64{}
	for i, a := range first.Rounds {
		ratio := compare(a, second.Rounds[i])
		all = append(all, ratio)
		starts[a.Start] = append(starts[a.Start], ratio)
	}
	if len(starts) == 1 {
		return all
	}
	var medians []float64
	for _, start := range slices.Sorted(maps.Keys(starts)) {
		medians = append(medians, median(starts[start]))
	}
	return medians
}

func processorRatio(first, second sample) float64 {
	return float64(second.used()) / max(1e-9, float64(first.used()))
}

// wholeProcessor compares the processor time of all rows that servers have a part in: the geometric mean of each start. It is
// false if there was one start only.
func (r *record) wholeProcessor() (estimate, bool) {
	names := r.names()
	var logs []float64 // by start
	rows := 0
	for _, k := range r.keys() {
		first, second := r.find(k, names[0]), r.find(k, names[1])
		if isCached(k) || first == nil || second == nil || len(first.Rounds) != len(second.Rounds) {
			continue
		}
		each := byStart(first, second, processorRatio)
		if logs == nil {
			logs = make([]float64, len(each))
		}
		if len(each) != len(logs) || first.Rounds[len(first.Rounds)-1].Start == 0 {
			return estimate{}, false
		}
		for i, ratio := range each {
			logs[i] += math.Log(ratio)
		}
		rows++
	}
	if rows == 0 {
		return estimate{}, false
	}
	for i := range logs {
		logs[i] = math.Exp(logs[i] / float64(rows))
	}
	return estimateOf(logs), true
}

// timeRatio compares the time that operations took. A closed loop has as many of them as it had time
// for; in an open loop their number is set, and the median latency says how long they took.
func timeRatio(k key, first, second sample) float64 {
	if isOpenLoop(k) {
		return float64(second.P50) / float64(max(1, first.P50))
	}
	return first.Rate / max(1e-9, second.Rate)
}

// ratioOf compares a figure per operation over all operations of a row.
func ratioOf(first, second *result, of func(sample) int64) float64 {
	mean := func(r *result) float64 {
		var sum, ops int64
		for _, s := range r.Rounds {
			sum += of(s) * s.Ops
			ops += s.Ops
		}
		return float64(sum) / float64(max(1, ops))
	}
	return mean(second) / max(1e-9, mean(first))
}

// certainty returns an interval that has the median of what the values were drawn from, whatever their
// distribution, with a certainty of at least 95 %; of fewer than six values the whole range, which has
// less. Each value is above that median as often as a coin shows heads, so the interval leaves out on
// either side as many values as there are heads in a series so poor in them that it is as rare as 2.5 %.
func certainty(values []float64) (low, high float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := int64(len(sorted))
	all := new(big.Int).Lsh(big.NewInt(1), uint(n))
	fewer, cut := new(big.Int), int64(0) // the ways to have at most cut heads
	for ; 2*cut+1 < n; cut++ {
		fewer.Add(fewer, new(big.Int).Binomial(n, cut))
		if new(big.Int).Mul(fewer, big.NewInt(40)).Cmp(all) > 0 { // more than 2.5 %
			break
		}
	}
	cut = max(0, cut-1)
	return sorted[cut], sorted[n-1-cut]
}

func (r *record) pairTable() table {
	names := r.names()
	t := table{head: []string{"operation, clients", names[0] + " /s", "p50", "p99", names[1] + " /s", "p50", "p99", "pairs", "time", "95 %", "processor", "95 %", "bytes"}}
	for _, c := range r.pairs() {
		cells := []string{c.String()}
		for _, s := range []sample{c.first, c.second} {
			cells = append(cells, fmt.Sprintf("%.0f", s.Rate), readable(s.P50), readable(s.P99))
		}
		sent := none
		if c.first.Bytes > 0 {
			sent = fmt.Sprintf("%.2f", c.sent)
		}
		t.rows = append(t.rows, append(cells,
			strconv.Itoa(c.pairs), fmt.Sprintf("%.2f", c.time.median), c.time.interval(), fmt.Sprintf("%.2f", c.processor.median), c.processor.interval(), sent))
	}
	return t
}

// checkPairs returns an error if the second system needs more than the options allow for an operation: of time in each closed
// loop, of processor time over all rows, if both were started more than once, or else in each row at a set rate. In a closed loop
// the processor time of an operation differs by a quarter from one part of a second to the next, with how many share an entry of
// the log. No row may be above the limit with all of its interval.
func (r *record) checkPairs(o options) error {
	var errs []error
	check := func(name, what string, is estimate, judged, limit float64) {
		if limit > 0 && judged > limit {
			errs = append(errs, fmt.Errorf("%s: %s takes %.3f times as much %s as %s (%s), want at most %v", name, r.names()[1], is.median, what, r.names()[0], is.interval(), limit))
		}
	}
	whole, repeated := r.wholeProcessor()
	if repeated {
		check("all rows", "processor time", whole, whole.median, o.processorAtMost)
	}
	for _, c := range r.pairs() {
		judged := c.processor.low
		if isOpenLoop(c.key) && !repeated {
			judged = c.processor.median
		}
		check(c.String(), "processor time", c.processor, judged, o.processorAtMost)
		if !isOpenLoop(c.key) { // else the latencies differ between pairs by more than any limit that would say something
			check(c.String(), "time", c.time, c.time.median, o.atMost)
		}
	}
	return errors.Join(errs...)
}

// reportPairs prints the comparison, and writes the page if one is asked for.
func (r *record) reportPairs(o options, out io.Writer) error {
	if o.output == "json" {
		return r.writeLines(out)
	}
	fmt.Fprintf(out, "%s\n%d processes a system, fsync on; medians of pairs of %v\n\n", r.Machine, r.Members, r.Measure)
	return errors.Join(r.pairTable().writeText(out), r.writePairsPage(o))
}

func (r *record) writePairsPage(o options) error {
	if o.page == "" {
		return nil
	}
	about := pairsTemplate
	if r.names()[1] == traced { // see measureStart
		about = measuringTemplate
	}
	closed := slices.DeleteFunc(r.pairs(), func(c ratios) bool { return isOpenLoop(c.key) })
	if len(closed) == 0 {
		return fmt.Errorf("%s: the page is about closed loops, and none of the chosen rows is one", o.page)
	}
	worst := slices.MaxFunc(closed, func(a, b ratios) int { return cmp.Compare(a.time.median, b.time.median) })
	whole, repeated := r.wholeProcessor()
	return writeDocument(o.page, about, r, map[string]any{
		"Record": r, "First": r.Systems[0], "Second": r.Systems[1], "Table": r.pairTable().markdown(),
		"Worst": worst.String(), "WorstTime": fmt.Sprintf("%.2f", worst.time.median), "AtMost": o.atMost,
		"Repeated": repeated, "Whole": fmt.Sprintf("%.3f", whole.median), "WholeInterval": whole.interval(), "ProcessorAtMost": o.processorAtMost, "Starts": max(1, o.starts),
	})
}
