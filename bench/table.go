package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table is a table of the page, or of the terminal.
type table struct {
	head []string
	rows [][]string
}

// none is the cell of what was not measured.
const none = "-"

// isLoop says whether a row has rates worth comparing: its clients repeat operations for a set time, as
// fast as they can.
func isLoop(k key) bool {
	return k.Row != acquisitions && k.Row != idleSessions && !isSingle(k) && !isOpenLoop(k)
}

// isSingle says whether a row measures single times.
func isSingle(k key) bool { return k.Row == watchersTold || k.Row == failover || k.Row == handOver }

func isOpenLoop(k key) bool { return strings.HasSuffix(k.Row, " /s asked for") }

// isCached says whether the servers have no part in a row.
func isCached(k key) bool { return k.Row == readCached || k.Row == lockedCached }

// rateTable has the rate, p50 and p99 of each system and, for two systems, the ratio of their rates.
// Rows that measure single times have these as p50 and, in place of p99, the longest.
func (r *record) rateTable() table {
	t := table{head: []string{"operation, clients"}}
	names := r.names()
	for _, name := range names {
		t.head = append(t.head, name+" /s", "p50", "p99")
	}
	if len(names) == 2 {
		t.head = append(t.head, names[0]+" : "+names[1])
	}
	for _, k := range r.keys() {
		cells := []string{k.String()}
		for _, name := range names {
			m, ok := r.median(k, name)
			switch {
			case !ok:
				cells = append(cells, none, none, none)
			case k.Row == idleSessions:
				cells = append(cells, none, none, none)
			case len(m.Times) > 0:
				cells = append(cells, none, readable(m.P50), "max "+readable(m.Max))
			default:
				cells = append(cells, fmt.Sprintf("%.0f", m.Rate), readable(m.P50), readable(m.P99))
			}
		}
		if len(names) == 2 {
			cells = append(cells, r.ratio(k, names[0], names[1]))
		}
		t.rows = append(t.rows, cells)
	}
	return t
}

// ratioTable has the rate of each system, and how many times as fast the first one is as each other.
func (r *record) ratioTable() table {
	t := table{head: []string{"operation, clients"}}
	names := r.names()
	for _, name := range names {
		t.head = append(t.head, name+" /s")
	}
	for _, name := range names[1:] {
		t.head = append(t.head, names[0]+" : "+name)
	}
	for _, k := range slices.DeleteFunc(r.keys(), func(k key) bool { return !isLoop(k) }) {
		cells := []string{k.String()}
		for _, name := range names {
			cells = append(cells, r.cell(k, name, func(s sample) string { return fmt.Sprintf("%.0f", s.Rate) }))
		}
		for _, name := range names[1:] {
			cells = append(cells, r.ratio(k, names[0], name))
		}
		t.rows = append(t.rows, cells)
	}
	return t
}

// ratio is the rate of a system divided by that of another.
func (r *record) ratio(k key, system, other string) string {
	a, okA := r.median(k, system)
	b, okB := r.median(k, other)
	if !okA || !okB || b.Rate == 0 {
		return none
	}
	return fmt.Sprintf("%.2f", a.Rate/b.Rate)
}

// cell is a figure of the medians, or none.
func (r *record) cell(k key, system string, of func(sample) string) string {
	if m, ok := r.median(k, system); ok {
		return of(m)
	}
	return none
}

// perSystem is a table of the rows that include chooses, with one column, or several, a system.
func (r *record) perSystem(title string, columns []string, include func(key) bool, of func(sample) []string) table {
	t := table{head: []string{title}}
	for _, name := range r.names() {
		for _, column := range columns {
			t.head = append(t.head, strings.TrimSpace(name+" "+column))
		}
	}
	for _, k := range slices.DeleteFunc(r.keys(), func(k key) bool { return !include(k) }) {
		cells := []string{k.String()}
		for _, name := range r.names() {
			if m, ok := r.median(k, name); ok {
				cells = append(cells, of(m)...)
			} else {
				cells = append(cells, slices.Repeat([]string{none}, len(columns))...)
			}
		}
		t.rows = append(t.rows, cells)
	}
	return t
}

func (r *record) latencyTable() table {
	return r.perSystem("operation, clients", []string{"p50", "p99"}, isLoop, func(s sample) []string {
		return []string{readable(s.P50), readable(s.P99)}
	})
}

func (r *record) processorTable() table {
	return r.perSystem("operation, clients", []string{"servers", "client", "bytes"}, isLoop, func(s sample) []string {
		return []string{readable(s.ServerCPU), readable(s.ClientCPU), fmt.Sprint(s.Bytes)}
	})
}

// waitTable is about fairness: whose turn it is on one lock.
func (r *record) waitTable() table {
	contended := func(k key) bool { return k.Row == oneLock }
	return r.perSystem("one lock, clients", []string{"mean wait", "longest : mean", "shares"}, contended, func(s sample) []string {
		return []string{readable(s.WaitMean), fmt.Sprintf("%.1f", float64(s.WaitMax)/float64(max(1, s.WaitMean))), fmt.Sprintf("%.2f to %.2f", s.Fewest, s.Most)}
	})
}

func (r *record) acquisitionTable() table {
	include := func(k key) bool { return k.Row == acquisitions }
	return r.perSystem("contenders", []string{"mean", "longest"}, include, func(s sample) []string {
		return []string{readable(s.WaitMean), readable(s.WaitMax)}
	})
}

// timeTable has the rows that measure single times.
func (r *record) timeTable() table {
	return r.perSystem("what", []string{"median", "longest"}, isSingle, func(s sample) []string {
		return []string{readable(s.P50), readable(s.Max)}
	})
}

// openTable has the rows whose operations begin at set times.
func (r *record) openTable() table {
	return r.perSystem("asked for, clients", []string{"/s", "p50", "p99"}, isOpenLoop, func(s sample) []string {
		return []string{fmt.Sprintf("%.0f", s.Rate), readable(s.P50), readable(s.P99)}
	})
}

// sessionTable says what sessions cost that do nothing.
func (r *record) sessionTable() table {
	include := func(k key) bool { return k.Row == idleSessions }
	return r.perSystem("sessions", []string{"processors", "KB a session"}, include, func(s sample) []string {
		return []string{fmt.Sprintf("%.3f", s.Cores), fmt.Sprintf("%.0f", float64(s.Memory)/float64(s.Ops)/1000)}
	})
}

// markdown writes the table for a page; all columns but the first are aligned to the right.
func (t table) markdown() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	fmt.Fprintf(&b, "|---|%s\n", strings.Repeat("--:|", len(t.head)-1))
	for _, cells := range t.rows {
		line(cells)
	}
	return b.String()
}

// writeText prints the tables for a terminal.
func (r *record) writeText(out io.Writer) error {
	fmt.Fprintf(out, "%s\n%d processes, fsync on; medians of %d rounds of %v a row\n", r.Machine, r.Members, r.Rounds, r.Measure)
	for _, t := range []table{r.rateTable(), r.waitTable(), r.acquisitionTable(), r.sessionTable(), r.processorTable()} {
		if len(t.rows) == 0 {
			continue
		}
		fmt.Fprintln(out)
		if err := t.writeText(out); err != nil {
			return err
		}
	}
	return nil
}

// writeText prints the table for a terminal.
func (t table) writeText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, cells := range append([][]string{t.head}, t.rows...) {
		fmt.Fprintln(w, strings.Join(cells, "\t")+"\t")
	}
	return w.Flush()
}

// readable formats a duration with three digits.
func readable(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.3g µs", float64(d)/float64(time.Microsecond))
}
