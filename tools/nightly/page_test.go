package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A run of one target replaces its results on the page, and leaves those of the
// others.
func TestPageKeepsTheOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nightly.md")
	all := steps(time.Second)
	for _, run := range []struct {
		target string
		line   string
		err    error
	}{{"race", "ok one", nil}, {"fuzz", "PASS", nil}, {"race", "ok two", errors.New("exit status 1")}} {
		p, err := openPage(file, all)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.target == run.target {
				if err := p.add(outcome{step: s, took: time.Minute, lines: []string{run.line}, err: run.err}, "abc"); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for want, n := range map[string]int{"| `make race`": 1, "| `make fuzz ": 1, "## make race\n": 1, "## make fuzz\n": 1, "ok one": 0, "ok two": 1, "**failed**": 1, "PASS": 1} {
		if got := strings.Count(string(text), want); got != n {
			t.Errorf("%q is in the page %d times, want %d:\n%s", want, got, n, text)
		}
	}
}
