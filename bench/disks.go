package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed disks.md.tmpl
var disksTemplate string

// isSurveyed says whether a row is measured at each place.
func isSurveyed(r row) bool {
	switch r.name {
	case oneLock:
		return r.clients == 16
	case "lock+unlock", "read", failover:
		return r.rate == 0
	}
	return strings.HasPrefix(r.name, "write ")
}

// aim is how a cell is to fare beside etcd.
type aim struct {
	says    string
	at      func(place) bool
	row     func(key) bool
	atLeast float64
}

// aims lists what -disks checks.
func aims() []aim {
	every := func(key) bool { return true }
	many := func(k key) bool {
		return k.Clients == 64 && (k.Row == "lock+unlock" || strings.HasPrefix(k.Row, "write "))
	}
	slowest := func(p place) bool { return p == place{Sync: 20 * time.Millisecond} }
	apart := func(p place) bool { return p == place{Trip: 20 * time.Millisecond} }
	return []aim{
		{"each fsync 2, 5 or 20 ms longer: no row below etcd by more than a twentieth", func(p place) bool {
			return slowest(p) || p == place{Sync: 2 * time.Millisecond} || p == place{Sync: 5 * time.Millisecond}
		}, every, 0.95},
		{"20 ms longer: 64 clients lock and write twice as often", slowest, many, 2},
		{"20 ms longer: 16 clients take one lock twice as often", slowest, func(k key) bool { return k.Row == oneLock && k.Clients == 16 }, 2},
		{"20 ms apart: 64 clients lock and write 1.5 times as often", apart, many, 1.5},
		{"20 ms apart: no row below etcd", apart, every, 1},
	}
}

// verdict is what became of an aim.
type verdict struct {
	aim
	lowest float64 // of the rows that it is about
	of     key
	none   bool // of these rows was measured
}

func (v verdict) isMissed() bool { return !v.none && v.lowest < v.atLeast }

// verdicts judges what the first system was beside etcd.
func (r *record) verdicts() []verdict {
	var list []verdict
	for _, a := range aims() {
		v := verdict{aim: a, lowest: math.Inf(1), none: true}
		for _, k := range r.keys() {
			if !a.at(k.At) || !a.row(k) {
				continue
			}
			if ratio, ok := r.lead(k, r.names()[0], "etcd"); ok && ratio < v.lowest {
				v.lowest, v.of, v.none = ratio, k, false
			}
		}
		list = append(list, v)
	}
	return list
}

// lead is how many times as fast a system is as another: by its rate, or by single times.
func (r *record) lead(k key, system, other string) (float64, bool) {
	a, okA := r.median(k, system)
	b, okB := r.median(k, other)
	switch {
	case !okA || !okB || system == other:
		return 0, false
	case isSingle(k):
		return float64(b.P50) / float64(max(1, a.P50)), true
	}
	return a.Rate / b.Rate, b.Rate > 0
}

func (r *record) verdictTable() table {
	t := table{head: []string{"aim", "at least", "lowest", "of", "holds"}}
	for _, v := range r.verdicts() {
		cells := []string{v.says, fmt.Sprint(v.atLeast), none, "", "not measured"}
		if !v.none {
			cells = []string{v.says, fmt.Sprint(v.atLeast), fmt.Sprintf("%.2f", v.lowest), v.of.String(), "yes"}
		}
		if v.isMissed() {
			cells[4] = "**no**"
		}
		t.rows = append(t.rows, cells)
	}
	return t
}

// surveyTable says what places are.
func (r *record) surveyTable() table {
	t := table{head: []string{"place", "append of 4 KiB and fsync", "64 bytes there and back"}}
	for _, p := range r.Places {
		t.rows = append(t.rows, []string{p.String(), readable(p.Fsync), readable(p.Echo)})
	}
	return t
}

// placeTable has the rows of some places: rate and p50 of each system, or the median of single times, and how many times as fast
// the first one is as each other.
func (r *record) placeTable(at func(place) bool) table {
	names := r.names()
	t := r.perSystem("operation, clients", []string{"/s", "p50"}, func(k key) bool { return at(k.At) }, func(s sample) []string {
		if len(s.Times) > 0 {
			return []string{none, readable(s.P50)}
		}
		return []string{fmt.Sprintf("%.0f", s.Rate), readable(s.P50)}
	})
	keys := slices.DeleteFunc(r.keys(), func(k key) bool { return !at(k.At) })
	for _, other := range names[1:] {
		t.head = append(t.head, names[0]+" : "+other)
		for i, k := range keys {
			cell := none
			if ratio, ok := r.lead(k, names[0], other); ok {
				cell = fmt.Sprintf("%.2f", ratio)
			}
			t.rows[i] = append(t.rows[i], cell)
		}
	}
	return t
}

// slower and farther choose the places of one kind, with this machine.
func slower(p place) bool  { return p.Trip == 0 }
func farther(p place) bool { return p.Sync == 0 }

// diskFigures lists the plots of the page.
func diskFigures() []figure {
	one := func(at func(place) bool) func(key) bool {
		return func(k key) bool { return at(k.At) && k.Clients == 1 }
	}
	many := func(at func(place) bool) func(key) bool {
		return func(k key) bool { return at(k.At) && isLoop(k) && k.Clients > 1 }
	}
	gap := func(k key) bool { return k.Row == failover }
	p50 := func(s sample) float64 { return float64(s.P50) / 1e6 }
	rate := func(s sample) float64 { return s.Rate }
	const times, rates = "p50 in milliseconds (less is better)", "operations a second (more is better)"
	return []figure{
		{"disks-one.svg", times, one(slower), p50}, {"disks-many.svg", rates, many(slower), rate},
		{"distances-one.svg", times, one(farther), p50}, {"distances-many.svg", rates, many(farther), rate},
		{"gaps.svg", "median gap in milliseconds (less is better)", gap, p50},
	}
}

// byRow puts the results of a row side by side: they were measured place by place.
func (r *record) byRow() {
	order := r.keys()
	first := func(of *result) int {
		return slices.IndexFunc(order, func(k key) bool { return k.Row == of.Row && k.Clients == of.Clients })
	}
	slices.SortStableFunc(r.Results, func(a, b *result) int { return first(a) - first(b) })
}

// reportDisks prints the results, writes the page if one is asked for, and returns an error if an aim was missed.
func (r *record) reportDisks(o options, out io.Writer) error {
	r.byRow()
	write := r.writeDisksText
	if o.output == "json" {
		write = r.writeLines
	}
	err := write(out)
	if o.page != "" {
		err = errors.Join(err, r.writeDisksPage(o.page))
	}
	for _, v := range r.verdicts() {
		if v.isMissed() {
			err = errors.Join(err, fmt.Errorf("an aim is missed: %s: %s: %.2f times, want at least %v", v.says, v.of, v.lowest, v.atLeast))
		}
	}
	return err
}

// writeDisksText prints the tables for a terminal.
func (r *record) writeDisksText(out io.Writer) error {
	fmt.Fprintf(out, "%s\n%d processes; medians of %d rounds of %v a row\n", r.Machine, r.Members, r.Rounds, r.Measure)
	every := r.placeTable(func(place) bool { return true })
	return errors.Join(r.surveyTable().writeText(out), every.writeText(out), r.verdictTable().writeText(out))
}

// writeDisksPage writes the page, the results beside it, and the plots into a directory of its name.
func (r *record) writeDisksPage(file string) error {
	dir := strings.TrimSuffix(file, filepath.Ext(file))
	if _, err := r.draw(dir, diskFigures()); err != nil {
		return err
	}
	missed := slices.ContainsFunc(r.verdicts(), verdict.isMissed)
	return writeDocument(file, disksTemplate, r, map[string]any{
		"Record": r, "Plots": filepath.Base(dir), "Survey": r.surveyTable().markdown(), "Verdicts": r.verdictTable().markdown(), "Missed": missed,
		"Disks": r.placeTable(slower).markdown(), "Distances": r.placeTable(farther).markdown(), "Contents": contents, "EtcdAttempt": etcdAttempt,
		"Spread": r.spread("chubby", "etcd"), "ZooKeeperSpread": r.spread("zookeeper"),
	})
}
