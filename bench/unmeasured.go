package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// edit is a text of a file that is replaced.
type edit struct{ file, old, new string }

// measuring is where a replica measures what it does: the calls, with the looks at the clock around them. Each text is in
// its file exactly once.
func measuring() []edit {
	return []edit{
		{"cell/epochs.go", "		Metrics:    r.metrics.master,\n", ""},
		{"cell/epochs.go", "		Stopwatch:  stopwatch(),\n", ""},
		{"cell/epochs.go", "			Ended: r.metrics.proofEnded,\n", ""},
		{"cell/epochs.go", "r.metrics.entrySized, r.times", "func(int) {}, r.times"},
		{"cell/replica.go", "		Answered:           r.metrics.calls.answered,\n", ""},
		{"cell/replica.go", "		Appended: func(a disk.Appended) {\n			r.metrics.appends.Observe(a.To.Sub(a.From).Seconds())\n			r.times.noteAppended(a)\n		},\n", ""},
		{"cell/replica.go", "	r.fsm.OnApplied(r.clock, func(a fsm.Applied) {\n		r.metrics.applies.Observe(a.To.Sub(a.From).Seconds())\n		r.times.noteApplied(a)\n	})\n", ""},
	}
}

// overlayUnmeasured writes the files of a replica that measures nothing into dir, and returns the file that has the Go command
// build with them (go build -overlay).
func overlayUnmeasured(repo, dir string) (string, error) {
	texts := map[string]string{}
	for _, m := range measuring() {
		if _, read := texts[m.file]; !read {
			text, err := os.ReadFile(filepath.Join(repo, m.file))
			if err != nil {
				return "", err
			}
			texts[m.file] = string(text)
		}
		if n := strings.Count(texts[m.file], m.old); n != 1 {
			return "", fmt.Errorf("%s has %q %d times, want once: bring bench/unmeasured.go up to date", m.file, m.old, n)
		}
		texts[m.file] = strings.Replace(texts[m.file], m.old, m.new, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		from, err := filepath.Abs(filepath.Join(repo, file))
		if err != nil {
			return "", err
		}
		to, err := filepath.Abs(filepath.Join(dir, strings.ReplaceAll(file, "/", "-")))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[from] = to
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}
