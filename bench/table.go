package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// book is everything measured, in the order of the first measurements.
type book struct {
	results []*result
	version map[string]string // by system
	systems []string          // in the order of turns
}

func (b *book) versions(name, version string) {
	if b.version == nil {
		b.version = map[string]string{}
	}
	if _, ok := b.version[name]; !ok {
		b.systems = append(b.systems, name)
	}
	b.version[name] = version
}

func (b *book) add(r row, system string, s sample) {
	found := b.find(r, system)
	if found == nil {
		found = &result{row: r, system: system}
		b.results = append(b.results, found)
	}
	found.rounds = append(found.rounds, s)
}

func (b *book) find(r row, system string) *result {
	for _, have := range b.results {
		if have.system == system && have.row.String() == r.String() {
			return have
		}
	}
	return nil
}

// rows lists the rows that any system has, in the order of the table.
func (b *book) rows(o options) []row {
	return slices.DeleteFunc(rows(o), func(r row) bool {
		return !slices.ContainsFunc(b.systems, func(system string) bool { return b.find(r, system) != nil })
	})
}

// spread returns the lowest and the highest rate.
func (r *result) spread() (low, high float64) {
	rate := func(a, b sample) int { return cmp.Compare(a.Rate, b.Rate) }
	return slices.MinFunc(r.rounds, rate).Rate, slices.MaxFunc(r.rounds, rate).Rate
}

// writeText prints the table for a terminal.
func writeText(out io.Writer, about machine, o options, b *book) error {
	fmt.Fprintf(out, "%s\n%d processes, fsync on; medians of %d rounds of %v a row\n\n", about, members, o.rounds, o.measure)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "operation, clients\t")
	for _, system := range b.systems {
		fmt.Fprintf(table, "%s /s\tp50\tp99\t", system)
	}
	if len(b.systems) == 2 {
		fmt.Fprintf(table, "%s : %s\t", b.systems[0], b.systems[1])
	}
	fmt.Fprintln(table)
	for _, r := range b.rows(o) {
		fmt.Fprintf(table, "%s\t", r)
		for _, cell := range b.cells(r) {
			fmt.Fprintf(table, "%s\t", cell)
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

// cells writes the figures of a row: rate, p50 and p99 of each system and, for
// two systems, the ratio of their rates.
func (b *book) cells(r row) []string {
	var cells []string
	var rates []float64
	for _, system := range b.systems {
		found := b.find(r, system)
		if found == nil {
			cells = append(cells, "-", "-", "-")
			continue
		}
		m := medianOf(found.rounds)
		cells = append(cells, fmt.Sprintf("%.0f", m.Rate), readable(m.P50), readable(m.P99))
		rates = append(rates, m.Rate)
	}
	switch {
	case len(b.systems) != 2:
	case len(rates) == 2 && rates[1] > 0:
		cells = append(cells, fmt.Sprintf("%.2f", rates[0]/rates[1]))
	default:
		cells = append(cells, "-")
	}
	return cells
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
