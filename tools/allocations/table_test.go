package main

import (
	"io"
	"maps"
	"strings"
	"testing"
)

const printed = `goos: linux
pkg: github.com/chubbylock/chubby/cell
BenchmarkCalls/lock+unlock-2     1000	   1143541 ns/op	   48548 B/op	     750 allocs/op
BenchmarkCalls/write_256_B-16    1000	    460111 ns/op	      9.5 ns/command	   26379 B/op	     356 allocs/op
BenchmarkDecode-2                1000	    460111 ns/op	   0 B/op	     0 allocs/op
BenchmarkCalls/lock+unlock-2     1000	   9143541 ns/op	   48990 B/op	     749 allocs/op
PASS
`

func TestTableIsReadAsWritten(t *testing.T) {
	costs, err := costsOf([]byte(printed))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]cost{"Calls/lock+unlock": {749, 48548}, "Calls/write 256 B": {356, 26379}, "Decode": {0, 0}}
	if !maps.Equal(costs, want) {
		t.Fatalf("read %v, want %v", costs, want)
	}
	if table, err := parse(page(costs)); err != nil || !maps.Equal(table, want) {
		t.Errorf("the page has %v, %v", table, err)
	}
	if _, err := parse(page(costs) + "| a | few | 12 |\n"); err == nil {
		t.Error("a row without figures is read")
	}
}

func TestBenchmarkThatCountsNothingIsAFault(t *testing.T) {
	for _, out := range []string{"PASS\n", "BenchmarkCalls-2 10 12 ns/op\n"} {
		if costs, err := costsOf([]byte(out)); err == nil {
			t.Errorf("%q gives %v", out, costs)
		}
	}
}

func TestCompare(t *testing.T) {
	table := map[string]cost{"a": {100, 10_000}, "free": {0, 0}}
	for _, c := range []struct {
		why string
		now map[string]cost
		bad string
	}{
		{"the same", map[string]cost{"a": {100, 10_000}, "free": {0, 0}}, ""},
		{"within the bounds", map[string]cost{"a": {105, 9_100}, "free": {0, 40}}, ""},
		{"more allocations", map[string]cost{"a": {106, 10_000}, "free": {0, 0}}, "a: worse"},
		{"more bytes", map[string]cost{"a": {100, 10_600}, "free": {0, 0}}, "a: worse"},
		{"one allocation where there was none", map[string]cost{"a": {100, 10_000}, "free": {1, 8}}, "free: worse"},
		{"much better", map[string]cost{"a": {80, 10_000}, "free": {0, 0}}, "a: better"},
		{"not measured", map[string]cost{"a": {100, 10_000}}, "free: in the table"},
		{"new", map[string]cost{"a": {100, 10_000}, "free": {0, 0}, "b": {1, 1}}, "b: not in the table"},
	} {
		err := compare(io.Discard, table, c.now)
		if (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %v, want %q", c.why, err, c.bad)
		}
	}
}
