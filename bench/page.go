package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"strings"
	"text/template"
	"time"
)

//go:embed page.md.tmpl
var pageTemplate string

// pageRow is a row of the page's tables.
type pageRow struct {
	Name  string
	Cells []string
}

// writePage writes the results as a page of the documentation.
func writePage(path string, about machine, o options, b *book) error {
	page, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return err
	}
	var versions []string
	for _, system := range b.systems {
		versions = append(versions, b.version[system])
	}
	var table, spread []pageRow
	for _, r := range b.rows(o) {
		table = append(table, pageRow{r.String(), b.cells(r)})
		var cells []string
		for _, system := range b.systems {
			text := "-"
			if found := b.find(r, system); found != nil {
				low, high := found.spread()
				text = fmt.Sprintf("%.0f to %.0f", low, high)
			}
			cells = append(cells, text)
		}
		spread = append(spread, pageRow{r.String(), cells})
	}
	var text bytes.Buffer
	err = page.Execute(&text, map[string]any{
		"Date": time.Now().UTC().Format(time.DateOnly), "Machine": about.String(), "Versions": strings.Join(versions, ", "),
		"Systems": b.systems, "Members": members, "Rounds": o.rounds, "Warm": o.warm, "Measure": o.measure,
		"Rows": table, "Spread": spread, "Both": len(b.systems) == 2, "AllEtcd": o.allEtcd,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}
