package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Two real cells run beside each other, and are compared.
func TestPairsOfRealCells(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := options{systems: []string{"chubby", encrypted}, rounds: 2, measure: time.Second, dir: dir, repo: "..", rows: "read, 1", page: filepath.Join(dir, "pairs.md"), atMost: 1000}
	var out bytes.Buffer
	if err := measureOn(t.Context(), o, &out, runPairs); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| read, 1 | ", "--tls", "](pairs.json)", "that of *read, 1*", "the target allows 1000"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	saved, err := loadRecord(filepath.Join(dir, "pairs.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range saved.Results {
		if len(result.Rounds) != o.rounds {
			t.Errorf("%s was measured %d times, want %d", result.System, len(result.Rounds), o.rounds)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "chubby-bench-*")); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

// paired returns the results of pairs in which the second system takes twice as long, except in one pair.
func paired() *record {
	r := newRecord(machine{CPUs: 2}, options{rounds: 3})
	r.addSystem("chubby", "Chubby")
	r.addSystem(encrypted, "Chubby --tls")
	for i, rate := range []float64{100, 200, 300} {
		second := sample{Rate: rate / 2, P50: 4 * time.Millisecond, Ops: 10, ServerCPU: 30, Bytes: 220}
		if i == 2 {
			second.Rate = rate * 3
		}
		for _, k := range []key{{Row: "read", Clients: 1}, {Row: "lock+unlock, 100 /s asked for", Clients: 64}} {
			r.add(k, "chubby", sample{Rate: rate, P50: time.Millisecond, Ops: 10, ServerCPU: 20, Bytes: 200})
			r.add(k, encrypted, second)
		}
	}
	r.add(key{Row: "write 256 B", Clients: 1}, "chubby", sample{Rate: 1}) // the other does not have it
	return r
}

func TestPairsAreCompared(t *testing.T) {
	list := paired().pairs()
	if len(list) != 2 {
		t.Fatalf("%d rows are compared, want the 2 that both systems have", len(list))
	}
	for i, want := range []float64{2, 4} { // of the rates, and of the median latencies
		if c := list[i]; c.time.median != want || c.processor.median != 1.5 || c.sent != 1.1 {
			t.Errorf("%s: time %v, processor %v, bytes %v; want %v, 1.5 and 1.1", c.key, c.time.median, c.processor.median, c.sent, want)
		}
	}
	if low, high := list[0].time.low, list[0].time.high; low != 1./3 || high != 2 {
		t.Errorf("of three pairs the interval is %v to %v, want all of them", low, high)
	}
	if err := paired().checkPairs(options{atMost: 2, processorAtMost: 1.5}); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := paired().checkPairs(options{processorAtMost: 1.4}); err == nil || !strings.Contains(err.Error(), "1.500 times as much processor time") {
		t.Errorf("beyond the limit of processor time: %v", err)
	}
	uneven := paired()
	for _, k := range []key{{Row: "read", Clients: 1}, {Row: "lock+unlock, 100 /s asked for", Clients: 64}} {
		uneven.add(k, "chubby", sample{Rate: 100, P50: time.Millisecond, Ops: 10, ServerCPU: 20})
		uneven.add(k, encrypted, sample{Rate: 50, P50: 4 * time.Millisecond, Ops: 10, ServerCPU: 10}) // half
	}
	if err := uneven.checkPairs(options{processorAtMost: 1.4}); err == nil || !strings.Contains(err.Error(), "asked for") || strings.Contains(err.Error(), "read") {
		t.Errorf("the interval of the closed loop has the limit in it, and at the set rate the median is above it: %v", err)
	}
	if k := (key{Row: "lock+unlock, 100 /s asked for", Clients: 64}); !uneven.isUndecided(k, options{processorAtMost: 1.4}) || uneven.isUndecided(key{Row: "read", Clients: 1}, options{processorAtMost: 1.4}) {
		t.Error("the row of a set rate is measured on, and the closed loop is not")
	}
	if err := paired().checkPairs(options{atMost: 1.9}); err == nil || !strings.Contains(err.Error(), "read, 1: ") || strings.Contains(err.Error(), "asked for") {
		t.Errorf("one closed loop is beyond the limit: %v", err)
	}
}

// One start of a cell is slower than the next: each counts once, however many pairs it has, and all rows count alike.
func TestStartsAreCompared(t *testing.T) {
	r := newRecord(machine{CPUs: 2}, options{})
	r.addSystem("chubby", "Chubby")
	r.addSystem(encrypted, "Chubby --tls")
	for start, cpu := range []time.Duration{10, 20, 40, 40, 40} {
		for range 1 + 9*(start/4) { // the last start has ten pairs
			for i, k := range []key{{Row: "read", Clients: 1}, {Row: "lock+unlock, 100 /s asked for", Clients: 64}} {
				r.add(k, "chubby", sample{Rate: 100, P50: time.Millisecond, ServerCPU: 20, Start: start})
				r.add(k, encrypted, sample{Rate: 100, P50: time.Millisecond, ServerCPU: cpu << (2 * i), Start: start})
			}
		}
	}
	if got := r.pairs()[0].processor; got.median != 2 || got.low != 0.5 || got.high != 2 {
		t.Errorf("the first row: %+v, want 2 (0.5 to 2)", got)
	}
	if got, ok := r.wholeProcessor(); !ok || math.Abs(got.median-4) > 1e-9 || math.Abs(got.low-1) > 1e-9 {
		t.Errorf("all rows: %+v %v, want 4 (from 1)", got, ok)
	}
	if err := r.checkPairs(options{processorAtMost: 4.1}); err != nil {
		t.Error(err)
	}
	if err := r.checkPairs(options{processorAtMost: 3.9}); err == nil || !strings.Contains(err.Error(), "all rows: ") || strings.Contains(err.Error(), "asked for") {
		t.Errorf("all rows are above the limit, and no row with all of its interval: %v", err)
	}
	if err := r.checkPairs(options{processorAtMost: 1.9}); err == nil || !strings.Contains(err.Error(), "asked for") {
		t.Errorf("a row is above the limit with all of its interval: %v", err)
	}
}

// What is switched off is in the source as it is; a cell is switched from one to the other while it serves, and sends its collector
// spans.
func TestUnmeasuredBesideTraced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := options{systems: []string{unmeasured, traced}, rounds: 1, measure: time.Second, dir: dir, repo: "..", rows: "read, 64", page: filepath.Join(dir, "cost.md")}
	var out bytes.Buffer
	if err := measureOn(t.Context(), o, &out, runPairs); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.page)
	if err != nil || !strings.Contains(string(text), "| read, 64 |") {
		t.Errorf("%v:\n%s\n%s", err, text, out.String())
	}
}

// A row is measured on as long as its interval has the limit in it.
func TestMorePairsDecide(t *testing.T) {
	k := key{Row: "read", Clients: 1}
	for limit, want := range map[float64]bool{0: false, 0.3: false, 1. / 3: true, 1.9: true, 2: false} { // it is 1/3 to 2
		if paired().isUndecided(k, options{atMost: limit}) != want {
			t.Errorf("a limit of %v: undecided is %v, want %v", limit, !want, want)
		}
	}
	if paired().isUndecided(key{Row: "lock+unlock, 100 /s asked for", Clients: 64}, options{atMost: 1.9}) || paired().isUndecided(key{Row: "write 256 B", Clients: 1}, options{atMost: 1.9}) {
		t.Error("a row that has no limit is undecided")
	}
}

// The intervals of a table of the sign test: of so many values so many are left out on either side.
func TestCertainty(t *testing.T) {
	for n, out := range map[int]int{1: 0, 5: 0, 6: 0, 8: 0, 9: 1, 12: 2, 15: 3, 20: 5, 25: 7, 50: 17} {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(i)
		}
		slices.Reverse(values)
		if low, high := certainty(values); low != float64(out) || high != float64(n-1-out) {
			t.Errorf("of %d values the interval is %v to %v, want %d left out on either side", n, low, high, out)
		}
	}
}

func TestPairsNeedTwoSystems(t *testing.T) {
	for _, args := range [][]string{{"-pairs", "-systems", "chubby"}, {"-pairs", "-systems", "chubby,etcd,chubby-tls"}, {"-at-most", "-1", "-systems", "chubby"}} {
		if _, err := parseOptions(args); err == nil || !strings.Contains(err.Error(), "-pairs of") {
			t.Errorf("%q: %v", args, err)
		}
	}
	if o, err := parseOptions([]string{"-pairs", "-systems", "chubby,chubby@../../before", "-dir", "."}); err != nil || !slices.Equal(o.systems, []string{"chubby", "chubby@../../before"}) {
		t.Errorf("%+v: %v", o, err)
	}
}
