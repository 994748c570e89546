//go:build linux

package clientprom_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/client"
)

var update = flag.Bool("update", false, "write docs/client-metrics.md as a client has it now")

// docs/client-metrics.md is generated from the metrics of a client.
func TestMetricsPage(t *testing.T) {
	const file = "../../docs/client-metrics.md"
	var page []byte
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		c, _ := w.open(client.OpenOptions{Read: true})
		page = metricsPage(w)
		must(t, c.Close(t.Context()))
	})
	if *update {
		must(t, os.WriteFile(file, page, 0o644))
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, page) {
		t.Errorf("docs/client-metrics.md is not what a client has (%v); run make generate", err)
	}
}

func metricsPage(w *world) []byte {
	var b bytes.Buffer
	b.WriteString(`<!-- Made of the program's own tables by make generate; do not edit. -->

# Metrics of a program's sessions

Programs in Go that use package ` + "`client/clientprom`" + ` have these beside their own metrics, as its documentation shows. They are of all sessions of the
process to which the same ` + "`clientprom.Metrics`" + ` was given, together, and have no name of a node, a principal or a replica in them. Counters begin at 0 when the
process starts. What the cell itself sees, its replicas serve: [metrics](metrics.md). Which to watch is in [monitoring](monitoring.md#programs-that-use-the-cell).

| metric | type | labels | meaning |
|---|---|---|---|
`)
	for _, f := range w.families() {
		var labels []string
		for _, pair := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+pair.GetName()+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
	return b.Bytes()
}
