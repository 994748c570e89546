package main

import (
	_ "embed"
	"fmt"
	"strings"
	"time"
)

//go:embed growth.md.tmpl
var growthTemplate string

// growthRow names what was measured at a size of an axis.
func growthRow(axis string, size int, row string) string {
	return fmt.Sprintf("%d %s: %s", size, axis, row)
}

// growthTable has a line for each size and row.
func (r *record) growthTable() table {
	t := table{head: []string{"at", "clients", "acquire p50", "× first", "acquire p99", "operations /s", "processor time of all replicas", "memory of all replicas"}}
	first := map[string]time.Duration{} // middle acquires, by axis, row and clients
	for _, k := range r.keys() {
		m, ok := r.median(k, "chubby")
		if !ok {
			continue
		}
		_, of, _ := strings.Cut(k.Row, " ")
		of = fmt.Sprint(of, k.Clients)
		if first[of] == 0 {
			first[of] = m.WaitP50
		}
		t.rows = append(t.rows, []string{
			k.Row, fmt.Sprint(k.Clients), readable(m.WaitP50), fmt.Sprintf("%.2f", float64(m.WaitP50)/float64(first[of])), readable(m.WaitP99), fmt.Sprintf("%.0f", m.Rate), readable(m.ServerCPU),
			fmt.Sprintf("%d MB", m.Memory>>20),
		})
	}
	return t
}

// writeGrowthPage writes the page, and the results beside it.
func (r *record) writeGrowthPage(file string) error {
	return writeDocument(file, growthTemplate, r, map[string]any{"Record": r, "Version": r.Systems[0].Version, "Table": r.growthTable().markdown()})
}
