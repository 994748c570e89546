package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A crowd of sessions of a real cell, a small one, outlives its master, and is written about; etcd's
// is beside it.
func TestCrowd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := filepath.Join(dir, "crowd.md")
	o := options{systems: []string{"chubby", "etcd"}, dir: dir, repo: "..", page: page, allEtcd: true, crowds: []int{300}, crowdTime: 2 * time.Second}
	var out strings.Builder
	if err := measureOn(t.Context(), o, &out, runCrowd); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"| chubby | 300 | 3 |", "| etcd | 300 | 3 |", "p99 | cores"} {
		if !strings.Contains(string(text), row) {
			t.Errorf("the page has no row %q:\n%s", row, text)
		}
	}
	written, err := os.ReadFile(filepath.Join(dir, "crowd.json"))
	if err != nil {
		t.Fatal(err)
	}
	var found crowdRecord
	if err := json.Unmarshal(written, &found); err != nil {
		t.Fatal(err)
	}
	for _, r := range found.Results {
		if r.Lost > 0 || r.Memory <= r.Before || r.Killed != (r.System == "chubby") || r.Mixed.Rate <= 0 || r.Mixed.P99 <= 0 || r.Killed && (r.Safe <= 0 || r.Elected <= 0) {
			t.Errorf("%+v", r)
		}
	}
}
