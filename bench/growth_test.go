package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The growth of a real cell, to a small size, is measured and written.
func TestGrowth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := filepath.Join(dir, "growth.md")
	o := options{systems: []string{"chubby"}, rounds: 1, measure: time.Second, dir: dir, repo: "..", page: page}
	r := newRecord(machine{CPUs: 2}, o)
	for _, a := range []axis{axes(options{mostNodes: 1_000})[0], axes(options{mostSessions: 1_000})[1], {
		name: "replicas", sizes: []int{1}, members: func(size int) int { return size },
		rows: func(int) []row { return []row{{name: "lock+unlock", clients: 1, op: take(own)}} },
	}} {
		if err := a.measure(t.Context(), o, dir, r); err != nil {
			t.Fatal(a.name, err)
		}
	}
	if err := r.writeGrowthPage(page); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"| 0 nodes: lock+unlock | 1 |", "| 1000 nodes: lock+unlock | 64 |", "| 1000 sessions: lock+unlock | 1 |", "| 1 replicas: lock+unlock | 1 |"} {
		if !strings.Contains(string(text), row) {
			t.Errorf("the page has no row %q:\n%s", row, text)
		}
	}
	for _, result := range r.Results {
		if s := result.Rounds[0]; s.Rate <= 0 || s.WaitP50 <= 0 || s.Memory <= 0 {
			t.Errorf("%v: %+v has no rate, no wait or no memory", result.key, s)
		}
	}
}
