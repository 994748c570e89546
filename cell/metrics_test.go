package cell

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
)

var update = flag.Bool("update", false, "write docs/metrics.md as the http port has it now")

// docs/metrics.md is generated from the metrics that a replica serves and from the comments of
// Health.
func TestMetricsPage(t *testing.T) {
	const file = "../docs/metrics.md"
	var page []byte
	synctest.Test(t, func(t *testing.T) {
		for _, r := range startCell(t, 2) {
			r.metrics.master.SessionEnded(api.ByClose, 1) // a metric with labels appears with its first value
			r.metrics.calls.answered("/chubby.Chubby/Open", api.OK, 0, "")
			page = metricsPage(t, r)
		}
	})
	if *update {
		if err := os.WriteFile(file, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, page) {
		t.Errorf("docs/metrics.md is not what a replica serves (%v); run make generate", err)
	}
}

func metricsPage(t *testing.T, r *Replica) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(`<!-- Made of the program's own tables by make generate; do not edit. -->

# The http port: health and metrics

A replica serves these, and nothing else, with GET and HEAD at the http address of its member (` + "`members`" + ` in the [configuration](chubbyd.md#configuration)), if it
has one. The port has no authentication and changes nothing; keep it on a private network or the loopback interface. Which metrics to watch, and what to do, is in
[operations](operations.md#what-to-watch).

| endpoint | |
|---|---|
`)
	for _, e := range endpoints(r) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", e.path, e.help)
	}
	b.WriteString("\n## Fields of /readyz\n\n| field | |\n|---|---|\n")
	for _, f := range fieldsOfHealth(t) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", f[0], f[1])
	}
	b.WriteString("\n## Metrics\n\nCounters begin at 0 when the process starts. What a master counts is counted by the replica that is the master. Metrics of the process\nand of the Go runtime (`process_*`, `go_*`) are there, too.\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
	families, err := r.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "chubby_") {
			var labels []string
			for _, pair := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, "`"+pair.GetName()+"`")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
		}
	}
	return b.Bytes()
}

// fieldsOfHealth returns the JSON fields of Health, with their comments.
func fieldsOfHealth(t *testing.T) [][2]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "health.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var fields [][2]string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Health" {
			return true
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json")
			name, _, _ := strings.Cut(tag, ",")
			comment := strings.TrimSpace(field.Comment.Text())
			if comment == "" {
				t.Errorf("Health.%s has no comment", field.Names[0].Name)
			}
			fields = append(fields, [2]string{name, comment})
		}
		return false
	})
	return fields
}
