package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// A history in which two held the lock at once is shown, and is an error, in a table and in JSON.
func TestHistoryTellsOfTwoHolders(t *testing.T) {
	first := api.Holding{Session: 1, Principal: "ann", Host: "web1", Mode: api.Exclusive, Generation: 5, Until: 8, End: api.ByExpiry, Delay: 15 * time.Second}
	after, during := first, first
	after.Generation, after.Until, after.End = 9, 0, 0
	during.Generation, during.Until, during.End = 7, 0, 0
	const sentence = "No two of these held it at once"
	for _, output := range []term.Format{"", "json"} {
		g := &globals{output: output}
		var b bytes.Buffer
		if err := printHistory(g.output, &b, api.History{Path: "/ls/foo/a", Holdings: []api.Holding{first, after}}); err != nil {
			t.Errorf("%q: one after the other: %v", output, err)
		}
		if said := strings.Contains(b.String(), sentence); said != (output == "") {
			t.Errorf("%q: one after the other:\n%s", output, b.String())
		}
		b.Reset()
		err := printHistory(g.output, &b, api.History{Path: "/ls/foo/a", Holdings: []api.Holding{first, during}})
		if err == nil || !strings.Contains(err.Error(), "tokens 5 and 7") {
			t.Errorf("%q: both at once: %v", output, err)
		}
		if strings.Contains(b.String(), sentence) || !strings.Contains(b.String(), "7") || !strings.Contains(b.String(), "web1") {
			t.Errorf("%q: both at once:\n%s", output, b.String())
		}
	}
}
