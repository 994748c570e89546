package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
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
	cell, err := client.Dial(ctx, client.Config{Servers: strings.Split(w.servers(), ",")})
	if err != nil {
		t.Fatal(err)
	}
	defer cell.Close()
	w.must("mkdir", w.path("jobs"))
	lock := w.path("jobs/nightly")
	slow := w.child(t, task{Do: "holdCaches", Clients: 1, Files: []string{w.path("jobs")}, Watch: "list"})
	slow.waitNote("ready", 0, 20*time.Second)
	eventually(t, "the client has the listing in its cache", func() bool { return cachers(ctx, cell, w.path("jobs")) == 1 })
	processes.Halt(t, slow.cmd.Process.Pid)

	// The command makes the file of its lock, which is new in a listing that the stopped client has in its cache.
	command := w.ctl("acquire", lock, "-v", "--trace-endpoint", spans.url, "--", "true")
	var cacher api.SessionID
	eventually(t, "the command waits for the cache of the stopped client", func() bool {
		e, err := cell.Explain(ctx, w.path("jobs"))
		if err != nil {
			t.Fatal(err)
		}
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
	held, err := h.Acquire(ctx, api.Exclusive, client.Reason("a test"))
	if err != nil {
		t.Fatal(err)
	}
	if err := command.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command waits for the lock", func() bool {
		e, err := cell.Explain(ctx, lock)
		return err == nil && len(e.Lock.Waiters) == 1
	})
	time.Sleep(500 * time.Millisecond)
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if code := command.wait(20 * time.Second); code != 0 {
		t.Fatalf("exit %d: %s", code, &command.stderr)
	}
	id := regexp.MustCompile(`trace ([0-9a-f]{32})`).FindStringSubmatch(command.stderr.String())
	if id == nil {
		t.Fatalf("-v does not name the trace: %s", &command.stderr)
	}

	want := strings.Fields(`chubbyctl/chubbyctl_acquire chubbyctl/chubby_open_a_session chubbyctl/chubby_open chubbyctl/attempt chubbyd/chubby.Chubby/Open
		chubbyd/wait_for_caches chubbyd/commit chubbyd/append_and_sync chubbyd/wait_for_a_quorum chubbyd/apply chubbyd/observe chubbyctl/chubby_acquire
		chubbyd/chubby.Chubby/Acquire chubbyd/wait_in_the_queue_of_the_lock chubbyctl/chubby_close_the_session chubbyd/chubby.Chubby/EndSession`)
	var missing []string
	eventually(t, "all spans are there", func() bool {
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

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience(20 * time.Second)); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not so within 20 s: %s", what)
		}
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
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(old), begin)
	_, tail, ends := strings.Cut(rest, end)
	if !found || !ends {
		t.Fatalf("%s has no place for a trace", page)
	}
	if err := os.WriteFile(page, fmt.Appendf(nil, "%s%s\n```\n%s```\n\n%s%s", head, begin, drawn, end, tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
