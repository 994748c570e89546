package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed page.md.tmpl
var pageTemplate string

// resultsFile is the name of the results beside the plots.
const resultsFile = "results.json"

// writeDocument writes a page as its template says, and the results beside it, which the page names as Results.
func writeDocument(file, about string, results any, values map[string]any) error {
	page, err := template.New(filepath.Base(file)).Parse(about)
	if err != nil {
		return err
	}
	beside := strings.TrimSuffix(file, filepath.Ext(file)) + ".json"
	values["Results"] = filepath.Base(beside)
	var text bytes.Buffer
	if err := errors.Join(saveResults(beside, results), page.Execute(&text, values)); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// saveResults writes a results file.
func saveResults(file string, results any) error {
	text, err := json.MarshalIndent(results, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// writePage writes the results as a page of the documentation, and into a directory beside it, named
// as the page is, the plots and the results file.
func (r *record) writePage(file string) error {
	dir := strings.TrimSuffix(file, filepath.Ext(file))
	plots, err := r.draw(dir, figures())
	if err != nil {
		return err
	}
	if err := saveResults(filepath.Join(dir, resultsFile), r); err != nil {
		return err
	}
	tables := map[string]table{
		"rates": r.ratioTable(), "latencies": r.latencyTable(), "processor": r.processorTable(), "waits": r.waitTable(),
		"acquisitions": r.acquisitionTable(), "times": r.timeTable(), "open": r.openTable(), "sessions": r.sessionTable(),
	}
	page, err := template.New("page").Funcs(template.FuncMap{
		"table": func(name string) string { return tables[name].markdown() },
		"rows":  func(name string) int { return len(tables[name].rows) },
		"plot": func(name, says string) string {
			for _, have := range plots {
				if have == name {
					return fmt.Sprintf("![%s](%s/%s)\n", says, filepath.Base(dir), name)
				}
			}
			return ""
		},
		"has": func(system string) bool {
			return strings.Contains(","+strings.Join(r.names(), ",")+",", ","+system+",")
		},
	}).Parse(pageTemplate)
	if err != nil {
		return err
	}
	var versions []string
	for _, m := range r.Systems {
		versions = append(versions, m.Version)
	}
	var text bytes.Buffer
	if err := page.Execute(&text, map[string]any{
		"Record": r, "Versions": strings.Join(versions, ", "), "Contents": contents, "EtcdAttempt": etcdAttempt,
		"Spread": r.spread(r.names()...),
	}); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}
