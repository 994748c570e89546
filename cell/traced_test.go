package cell

import (
	"bytes"
	"context"
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
	"time"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/fsm"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/session"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// tracing returns what traces calls, at a time that the test sets, and where its spans are.
func tracing(t *testing.T, sampler sdktrace.Sampler) (wire.Tracer, *session.Instant, *tracetest.InMemoryExporter) {
	t.Helper()
	spans, now := tracetest.NewInMemoryExporter(), new(session.Instant)
	*now = session.Instant(time.Hour)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sdktrace.ParentBased(sampler)))
	cfg := Config{ID: "r1", Clock: func() session.Instant { return *now }}
	cfg.Tracing = TraceConfig{Provider: provider, Ratio: 1}
	return newTracer(cfg), now, spans
}

// A client is believed to which trace its call belongs if it says so in the form of W3C Trace Context; whatever else it says
// begins no trace and ends no call.
func TestParentsOfTraces(t *testing.T) {
	tracer, _, spans := tracing(t, sdktrace.NeverSample())
	const id = "0af7651916cd43dd8448eb211c80319c"
	for parent, traced := range map[string]bool{
		"":                                  false,
		"00-" + id + "-b7ad6b7169203331-01": true,
		"00-" + id + "-b7ad6b7169203331-00": false,
		"00-" + strings.ToUpper(id) + "-b7ad6b7169203331-01":        false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":   false,
		"00-" + id + "-0000000000000000-01":                         false,
		"ff-" + id + "-b7ad6b7169203331-01":                         false,
		"00-" + id + "-b7ad6b7169203331/01":                         false,
		"00-" + strings.Repeat("\xff", 32) + "-b7ad6b7169203331-01": false,
		"0123456789012345678901234567890123456789012345678901234":   false,
	} {
		spans.Reset()
		call := tracer.Begin(context.Background(), "Open", parent)
		failIf(t, (call != nil) != traced, "%q: a trace: %v, want %v", parent, call != nil, traced)
		if call != nil {
			call.End(wire.TraceSubject{}, api.OK)
			if list := spans.GetSpans(); len(list) != 1 || list[0].Parent.TraceID().String() != id || !list[0].Parent.IsRemote() {
				t.Errorf("%q: the spans are %v", parent, list)
			}
		}
	}
}

// So many calls are traced in a second, and not more, whatever clients ask for.
func TestTracesAreBounded(t *testing.T) {
	tracer, now, _ := tracing(t, sdktrace.AlwaysSample())
	for range 3 {
		begun := 0
		for range 2 * maxTraced {
			if call := tracer.Begin(context.Background(), "Open", ""); call != nil {
				begun++
			}
		}
		equal(t, begun, maxTraced, "%d calls are traced in a second")
		*now = now.Add(time.Second)
	}
}

// The times of an entry are those of its own index, or none.
func TestEntryTimes(t *testing.T) {
	times := &entryTimes{}
	times.noteAppended(disk.Appended{First: 5, Last: 6, From: 10, To: 20})
	times.noteApplied(fsm.Applied{First: 4, Last: 5, From: 30, To: 40})
	for index, want := range map[uint64]steps.Phases{
		4: {ApplyFrom: 30, ApplyTo: 40},
		5: {AppendFrom: 10, AppendTo: 20, ApplyFrom: 30, ApplyTo: 40},
		6: {AppendFrom: 10, AppendTo: 20},
		7: {},
	} {
		times.settle(index)
		if got := times.phases(); got != want {
			t.Errorf("entry %d: %v, want %v", index, got, want)
		}
	}
}

// A sample of a histogram names the trace of the call that it is of.
func TestExemplars(t *testing.T) {
	calls, locks := newCallTimes(meter{}), newLockTimes(meter{}, nil)
	calls.answered("/chubby.Chubby/Open", api.OK, time.Second, "one")
	calls.answered("/chubby.Chubby/Open", api.OK, 2*time.Hour, "")
	locks.waited("/a", time.Second, "two")
	for want, collect := range map[string]interface{ Write(*dto.Metric) error }{
		"one": calls.of(callKind{"/chubby.Chubby/Open", api.OK}).(interface{ Write(*dto.Metric) error }),
		"two": locks.of("/a").waits.(interface{ Write(*dto.Metric) error }),
	} {
		var m dto.Metric
		noErr(t, collect.Write(&m))
		var got []string
		for _, b := range m.GetHistogram().GetBucket() {
			if e := b.GetExemplar(); e != nil {
				got = append(got, e.GetLabel()[0].GetName()+"="+e.GetLabel()[0].GetValue())
			}
		}
		failIf(t, len(got) != 1 || got[0] != "trace_id="+want, "the exemplars are %v, want trace_id=%s", got, want)
	}
}

// What a client names is in its span as far as there is room, in whole characters: a collector refuses all spans of a message in which one
// has half a character.
func TestTracesHaveWholeCharacters(t *testing.T) {
	for shift := range 4 {
		tracer, _, spans := tracing(t, sdktrace.AlwaysSample())
		call := tracer.Begin(context.Background(), "Open", "")
		call.End(wire.TraceSubject{Path: strings.Repeat("x", shift) + strings.Repeat("é𝄞", logTextBytes)}, api.InvalidArgument)
		for _, a := range spans.GetSpans()[0].Attributes {
			if text := a.Value.AsString(); !utf8.ValidString(text) {
				t.Errorf("%s ends with %q", a.Key, text[len(text)-8:])
			}
		}
	}
}

// Of calls whose clients have said nothing the ratio decides, before the library is asked; of the others their clients.
func TestRatioOfTraces(t *testing.T) {
	const id = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
	const sampled, unsampled, malformed = id + "01", id + "00", "0123456789012345678901234567890123456789012345678901231"
	for _, of := range []struct {
		ratio            float64
		parent           string
		fewest, mostOf1k int
	}{
		{0, "", 0, 0}, {1, "", 1000, 1000}, {0.5, "", 300, 700},
		{0, sampled, 1000, 1000}, {1, unsampled, 0, 0}, {1, sampled, 1000, 1000}, {0, malformed, 0, 0},
	} {
		w, now, _ := tracing(t, sdktrace.AlwaysSample())
		w.(*tracer).ratio = of.ratio
		begun := 0
		for range 1000 {
			if c := w.Begin(t.Context(), "/chubby.Chubby/Open", of.parent); c != nil {
				begun++
				c.End(wire.TraceSubject{}, api.OK)
			}
			*now = now.Add(time.Second) // so that the bound in a second is not reached
		}
		failIf(t, begun < of.fewest || begun > of.mostOf1k, "ratio %v, parent %q: %d of 1000 are traced", of.ratio, of.parent, begun)
	}
}

var update = flag.Bool("update", false, "write docs/metrics.md as the http port has it now")

// docs/metrics.md is generated from the metrics that a replica serves and from the comments of Health.
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
		noErr(t, os.WriteFile(file, page, 0o644))
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
	families := must(r.metrics.registry.Gather())(t)
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
	parsed := must(parser.ParseFile(token.NewFileSet(), "httpport.go", nil, parser.ParseComments))(t)
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
			failIf(t, comment == "", "Health.%s has no comment", field.Names[0].Name)
			fields = append(fields, [2]string{name, comment})
		}
		return false
	})
	return fields
}

// A lock counts where the longest path is that it is at or below.
func TestLockTimesOfPrefixes(t *testing.T) {
	l := newLockTimes(meter{}, []string{"/ls/main/a", "/ls/local/a/deep", "/ls/main/b"})
	for name, want := range map[api.Name]api.Name{
		"/a": "/a", "/a/x": "/a", "/a/deep": "/a/deep", "/a/deep/x": "/a/deep", "/a/deeper": "/a", "/ab": "", "/b/a": "/b", "/c": "", "": "",
	} {
		if got := l.of(name).name; got != want {
			t.Errorf("%q counts at %q, want %q", name, got, want)
		}
	}
	if got := newLockTimes(meter{}, []string{"/ls/main"}).of("/a").name; got != "" {
		t.Errorf("below the root: %q", got)
	}
}

func TestMetricPrefixesAreChecked(t *testing.T) {
	many := make([]string, MaxMetricPrefixes+1)
	for i := range many {
		many[i] = "/ls/main/" + strings.Repeat("x", i+1)
	}
	for want, prefixes := range map[string][]string{
		"at most 32": many, "another cell": {"/ls/other/a"}, "begins with": {"a"}, "twice": {"/ls/main/a", "/ls/local/a"},
	} {
		var f faults
		if (Config{Cell: "main", MetricPrefixes: prefixes}).checkMetricPrefixes(&f); len(f) != 1 || !strings.Contains(f[0], want) {
			t.Errorf("%q: %q, want one about %q", prefixes, f, want)
		}
	}
	var f faults
	if (Config{Cell: "main", MetricPrefixes: many[1:]}).checkMetricPrefixes(&f); len(f) > 0 {
		t.Error(f)
	}
}
