package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
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
	page, err := template.New("growth").Parse(growthTemplate)
	if err != nil {
		return err
	}
	results := strings.TrimSuffix(file, filepath.Ext(file)) + ".json"
	if err := r.save(results); err != nil {
		return err
	}
	var text strings.Builder
	err = page.Execute(&text, map[string]any{
		"Record": r, "Version": r.Systems[0].Version, "Results": filepath.Base(results), "Table": r.growthTable().markdown(),
	})
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}
