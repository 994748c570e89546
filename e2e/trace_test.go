package e2e

import (
	"cmp"
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

var tracePage = flag.String("trace-page", "", "the page into which TestTrace writes the trace that it has seen")

// One trace shows what one command has waited for, from chubbyctl to the grant: for a client that does not drop what it has in its
// cache, since it is stopped; for who had the lock before; and for the log. The cell, the clients and the collector are
// processes, and talk as they do anywhere.
func TestTrace(t *testing.T) {
	besideOthers(t)
	spans := newCollector(t)
	w := newWorld(t)
	w.env = []string{"CHUBBYD_TRACE_ENDPOINT=" + spans.url, "CHUBBYD_TRACE_RATIO=0"}
	w.run()
	ctx, cancel := context.WithTimeout(context.Background(), patience(time.Minute))
	defer cancel()
	before := w.client(client.Config{NoCache: true})
	cell := must(client.Dial(ctx, client.Config{Servers: strings.Split(w.servers(), ",")}))(t)
	defer cell.Close()
	w.must("mkdir", w.path("jobs"))
	lock := w.path("jobs/nightly")
	slow := w.child(t, task{Do: "holdCaches", Clients: 1, Files: []string{w.path("jobs")}, Watch: "list"})
	slow.waitNote("ready", 0, 20*time.Second)
	w.await("the client has the listing in its cache", func() bool { return cachers(ctx, cell, w.path("jobs")) == 1 })
	processes.Halt(t, slow.cmd.Process.Pid)

	// The command makes the file of its lock, which is new in a listing that the stopped client has in its cache.
	command := w.ctl("acquire", lock, "-v", "--trace-endpoint", spans.url, "--", "true")
	var cacher api.SessionID
	w.await("the command waits for the cache of the stopped client", func() bool {
		e := must(cell.Explain(ctx, w.path("jobs")))(t)
		for _, c := range e.Cachers {
			if c.Waiting > 0 {
				cacher = c.Session
			}
		}
		return cacher != 0
	})
	// So that another has the lock when it is there, the command is stopped, too, for as long as the other waits.
	processes.Halt(t, command.cmd.Process.Pid)
	h := w.handle(ctx, before, lock)
	held := must(h.Acquire(ctx, api.Exclusive, client.Reason("a test")))(t)
	noErr(t, command.cmd.Process.Signal(syscall.SIGCONT))
	w.await("the command waits for the lock", func() bool {
		e, err := cell.Explain(ctx, lock)
		return err == nil && len(e.Lock.Waiters) == 1
	})
	time.Sleep(500 * time.Millisecond)
	noErr(t, held.Release(ctx))
	if code := command.wait(20 * time.Second); code != 0 {
		t.Fatalf("exit %d: %s", code, &command.stderr)
	}
	id := regexp.MustCompile(`trace ([0-9a-f]{32})`).FindStringSubmatch(command.stderr.String())
	stopIf(t, id == nil, "-v does not name the trace: %s", &command.stderr)

	want := strings.Fields(`chubbyctl/chubbyctl_acquire chubbyctl/chubby_open_a_session chubbyctl/chubby_open chubbyctl/attempt chubbyd/chubby.Chubby/Open
		chubbyd/wait_for_caches chubbyd/commit chubbyd/append_and_sync chubbyd/wait_for_a_quorum chubbyd/apply chubbyd/observe chubbyctl/chubby_acquire
		chubbyd/chubby.Chubby/Acquire chubbyd/wait_in_the_queue_of_the_lock chubbyctl/chubby_close_the_session chubbyd/chubby.Chubby/EndSession`)
	var missing []string
	w.await("all spans are there", func() bool {
		missing = missing[:0]
		for _, name := range want {
			if !slices.ContainsFunc(spans.of(id[1]), func(s sentSpan) bool { return s.service+"/"+strings.ReplaceAll(s.GetName(), " ", "_") == name }) {
				missing = append(missing, name)
			}
		}
		return len(missing) == 0
	})
	list, depths := tree(spans.of(id[1]))
	for i, s := range list {
		if i > 0 && depths[i] == 0 {
			t.Errorf("%s of %s is below no other span", s.GetName(), s.service)
		}
		switch s.GetName() {
		case "wait for caches":
			if got := text(s.GetAttributes(), "chubby.slow.sessions"); got != cacher.String() || s.took() < 100*time.Millisecond {
				t.Errorf("it waited for the cache of session %s for %v, want session %v", got, s.took(), cacher)
			}
		case "wait in the queue of the lock":
			if got := text(s.GetAttributes(), "chubby.lock.holders"); got != before.Session().String() || s.took() < 400*time.Millisecond {
				t.Errorf("it waited behind session %s for %v, want session %v", got, s.took(), before.Session())
			}
		}
	}
	drawn := picture(list)
	t.Log("\n" + drawn)
	if *tracePage != "" {
		writeTrace(t, *tracePage, drawn)
	}
	if others := spans.except(id[1]); len(others) > 0 {
		t.Errorf("there are spans of calls that nobody wanted to be traced:\n%s", picture(others))
	}
}

// cachers returns how many clients have something of a file or directory in their caches.
func cachers(ctx context.Context, cell *client.Cell, path string) int {
	e, err := cell.Explain(ctx, path)
	if err != nil {
		return 0
	}
	return len(e.Cachers)
}

// writeTrace puts a picture between the marks of a page.
func writeTrace(t *testing.T, page, drawn string) {
	t.Helper()
	const begin, end = "<!-- trace: made by make trace-example -->\n", "<!-- end of trace -->"
	old := must(os.ReadFile(page))(t)
	head, rest, found := strings.Cut(string(old), begin)
	_, tail, ends := strings.Cut(rest, end)
	stopIf(t, !found || !ends, "%s has no place for a trace", page)
	noErr(t, os.WriteFile(page, fmt.Appendf(nil, "%s%s\n```\n%s```\n\n%s%s", head, begin, drawn, end, tail), 0o644))
}

// collector takes spans as any collector of OpenTelemetry does, and keeps them.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	url string

	mu    sync.Mutex // guards spans
	spans []sentSpan
}

// sentSpan is a span, and which program has sent it.
type sentSpan struct {
	*tracepb.Span
	service string
}

// newCollector serves until the test ends.
func newCollector(t *testing.T) *collector {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	c, s, done := &collector{url: "http://" + l.Addr().String()}, grpc.NewServer(), make(chan error, 1)
	collectorpb.RegisterTraceServiceServer(s, c)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		report(t, <-done)
	})
	return c
}

// Export implements collectorpb.TraceServiceServer.
func (c *collector) Export(_ context.Context, q *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range q.GetResourceSpans() {
		service := text(r.GetResource().GetAttributes(), "service.name")
		for _, s := range r.GetScopeSpans() {
			for _, one := range s.GetSpans() {
				c.spans = append(c.spans, sentSpan{one, service})
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// of returns the spans of a trace.
func (c *collector) of(trace string) []sentSpan {
	return c.which(func(s sentSpan) bool { return hex.EncodeToString(s.GetTraceId()) == trace })
}

// except returns the spans of all other traces.
func (c *collector) except(trace string) []sentSpan {
	return c.which(func(s sentSpan) bool { return hex.EncodeToString(s.GetTraceId()) != trace })
}

func (c *collector) which(is func(sentSpan) bool) (list []sentSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if is(s) {
			list = append(list, s)
		}
	}
	return list
}

// text returns an attribute as text, or ""; of a list the first.
func text(attributes []*commonpb.KeyValue, key string) string {
	for _, a := range attributes {
		if a.GetKey() != key {
			continue
		}
		v := a.GetValue()
		if list := v.GetArrayValue().GetValues(); len(list) > 0 {
			v = list[0]
		}
		return cmp.Or(v.GetStringValue(), fmt.Sprint(v.GetIntValue()))
	}
	return ""
}

func (s sentSpan) began() time.Time { return time.Unix(0, int64(s.GetStartTimeUnixNano())) }
func (s sentSpan) took() time.Duration {
	return time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano())
}

// tree puts the spans of a trace in the order of a tree, each with its depth. A span whose parent is not there has none.
func tree(spans []sentSpan) (list []sentSpan, depths []int) {
	slices.SortStableFunc(spans, func(a, b sentSpan) int { return a.began().Compare(b.began()) })
	known := map[string]bool{}
	for _, s := range spans {
		known[string(s.GetSpanId())] = true
	}
	var walk func(parent string, depth int)
	walk = func(parent string, depth int) {
		for _, s := range spans {
			if p := string(s.GetParentSpanId()); p == parent || depth == 0 && !known[p] {
				list, depths = append(list, s), append(depths, depth)
				walk(string(s.GetSpanId()), depth+1)
			}
		}
	}
	walk("-", 0)
	return list, depths
}

// picture draws a trace: a line for each span, with what it took and a bar for when that was.
func picture(spans []sentSpan) string {
	const wide, name = 30, 46
	list, depths := tree(spans)
	first, last := list[0].began(), list[0].began().Add(list[0].took())
	for _, s := range list {
		if end := s.began().Add(s.took()); end.After(last) {
			last = end
		}
	}
	at := func(moment time.Time) int { return int(moment.Sub(first) * wide / max(last.Sub(first), 1)) }
	var b strings.Builder
	for i, s := range list {
		from, to := at(s.began()), at(s.began().Add(s.took()))
		bar := strings.Repeat(" ", from) + strings.Repeat("#", max(1, to-from))
		fmt.Fprintf(&b, "%-*s %10s  |%-*s|\n", name, strings.Repeat("  ", depths[i])+s.GetName(), s.took().Round(10*time.Microsecond), wide+1, bar)
	}
	return b.String()
}
