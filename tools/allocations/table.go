package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

const head = `# What the hot paths allocate

Allocations and bytes of one operation, counted by the benchmarks of the same names (those of the state machine apply entries of 1 or 64
commands, twice for lock+unlock; those of calls count the client and a cell of one replica together). ` + "`make allocations`" + ` compares them with
this table and fails at one that has become worse by more than a twentieth, or better by more than a tenth: then
` + "`go -C tools run ./allocations -write`" + ` writes the table, and the commit says why.

| benchmark | allocations | bytes |
|---|--:|--:|
`

// page writes the table.
func page(costs map[string]cost) string {
	var b strings.Builder
	b.WriteString(head)
	for _, name := range sorted(costs, nil) {
		fmt.Fprintf(&b, "| %s | %.0f | %.0f |\n", name, costs[name].allocs, costs[name].bytes)
	}
	return b.String()
}

// parse reads what page wrote.
func parse(text string) (map[string]cost, error) {
	_, rows, found := strings.Cut(text, "|---|--:|--:|\n")
	if !found {
		return nil, errors.New("there is no table in it")
	}
	costs := map[string]cost{}
	for line := range strings.Lines(rows) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 {
			return nil, fmt.Errorf("not a row: %q", line)
		}
		var c cost
		if _, err := fmt.Sscan(cells[1]+cells[2], &c.allocs, &c.bytes); err != nil {
			return nil, fmt.Errorf("not a row: %q: %w", line, err)
		}
		costs[strings.TrimSpace(cells[0])] = c
	}
	return costs, nil
}

// By how much an operation may cost more than the table says, and less; a path of a few allocations may not
// have one more. Bytes of a call depend a little on which buffers were at hand.
const (
	worse, better = 1.05, 0.90
	slackAllocs   = 0.5
	slackBytes    = 64
)

// compare prints each benchmark beside its row, and returns an error if one differs.
func compare(w io.Writer, table, now map[string]cost) error {
	var faults []error
	for _, name := range sorted(table, now) {
		was, listed := table[name]
		is, measured := now[name]
		verdict := "as in the table"
		switch {
		case !listed:
			verdict = "not in the table"
		case !measured:
			verdict = "in the table, but not measured"
		case is.allocs > was.allocs*worse+slackAllocs || is.bytes > was.bytes*worse+slackBytes:
			verdict = "worse"
		case is.allocs < was.allocs*better-slackAllocs || is.bytes < was.bytes*better-slackBytes:
			verdict = "better: write the table"
		}
		fmt.Fprintf(w, "%-45s %8.0f allocations, %8.0f in the table; %9.0f bytes, %9.0f: %s\n",
			name, is.allocs, was.allocs, is.bytes, was.bytes, verdict)
		if verdict != "as in the table" {
			faults = append(faults, fmt.Errorf("%s: %s", name, verdict))
		}
	}
	if len(faults) > 0 {
		faults = append(faults, errors.New("if it is meant so: go -C tools run ./allocations -write, and say why in the commit"))
	}
	return errors.Join(faults...)
}
