package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

func TestWatchFaults(t *testing.T) {
	for args, text := range map[string]string{
		"watch":                                  "an argument is missing",
		"watch /ls/local/a b":                    "is not expected",
		"watch ./motd":                           "relative",
		"watch /ls/local/a --contents":           "-o json and for --exec",
		"watch /ls/local/a --count 0":            "--count 0",
		"watch /ls/local/a --count -1":           "--count -1",
		"watch /ls/local/a --exec=":              "no command",
		"watch /ls/local/a --events=":            "want one or more of contents-modified",
		"watch /ls/local/a --events burned":      "want some of contents-modified, lock-acquired, lock-vacant, conflicting-lock-request, child-added",
		"watch /ls/local/a --events events-lost": "told in any case",
	} {
		_, err := execute(t, nil, strings.Fields(args)...)
		if exitCode(err) != exitUsage || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v (exit code %d), want %d with %q", args, err, exitCode(err), exitUsage, text)
		}
	}
	if _, err := execute(t, nil, "watch", "/ls/local/a", "--count", "1"); exitCode(err) != exitUnavailable {
		t.Errorf("a good command line: %v", err)
	}
}

func TestWantedKinds(t *testing.T) {
	for _, c := range []struct {
		events   []string
		children bool
		hook     bool
		want     string
	}{
		{nil, false, true, "contents-modified"},
		{nil, true, true, "contents-modified child-added child-removed child-modified"},
		{nil, false, false, "contents-modified lock-acquired lock-vacant"},
		{nil, true, false, "contents-modified child-added child-removed child-modified lock-acquired lock-vacant"},
		{[]string{"lock-acquired", " lock-acquired"}, false, true, "lock-acquired"},
		{[]string{"child-added", "conflicting-lock-request"}, true, false, "child-added child-removed child-modified conflicting-lock-request"},
	} {
		kinds, err := wantedKinds(c.events, c.children, c.hook)
		if got := strings.Join(kindNames(kinds), " "); err != nil || got != c.want {
			t.Errorf("%q, children %t: %q, %v; want %q", c.events, c.children, got, err, c.want)
		}
	}
}

// watching is a watch on /ls/foo/dir whose clock stands still.
func watching(out io.Writer) *watchOptions {
	return &watchOptions{
		globals: &globals{output: "text"}, path: api.MustParsePath("/ls/foo/dir"), out: out, err: io.Discard,
		now: func() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.Local) },
	}
}

// telling returns a Next that returns these events, and then fails with end.
func telling(end error, events ...api.Event) func(context.Context) (api.Event, error) {
	return func(context.Context) (api.Event, error) {
		if len(events) == 0 {
			return api.Event{}, end
		}
		e := events[0]
		events = events[1:]
		return e, nil
	}
}

var errNoMore = errors.New("no more")

func everyKind() []api.Event {
	return []api.Event{
		{Kind: api.EventContentsModified, Path: "/ls/foo/dir", Generation: 7},
		{Kind: api.EventChildAdded, Path: "/ls/foo/dir", Child: "web", Generation: 12},
		{Kind: api.EventMasterFailedOver},
		{Kind: api.EventLost, Path: "/ls/foo/dir", Explanation: "its\nown\x1b words"},
		{Kind: api.EventHandleInvalid, Path: "/ls/foo/dir", Reason: api.ByDeletion, Explanation: "by ann"},
	}
}

func TestWatchText(t *testing.T) {
	var out bytes.Buffer
	err := watching(&out).followEvents(t.Context(), telling(errNoMore, everyKind()...))
	want := strings.ReplaceAll(`@  contents-modified   /ls/foo/dir  7
@  child-added         /ls/foo/dir/web  12
@  master-failed-over  /ls/foo/dir  -  another master serves the cell, and events may have been lost: look again
@  events-lost         /ls/foo/dir  -  its\nown\x1b words
@  handle-invalid      /ls/foo/dir  -  deleted: by ann
`, "@", "2026-03-04 05:06:07.089")
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
	if exitCode(err) != exitFailed || !errors.Is(err, api.HandleClosed) || !strings.Contains(err.Error(), "deleted: by ann") {
		t.Errorf("the end of the node: %v (exit code %d)", err, exitCode(err))
	}
}

func TestWatchJSON(t *testing.T) {
	var out bytes.Buffer
	o := watching(&out)
	o.output = "json"
	_ = o.followEvents(t.Context(), telling(errNoMore, everyKind()...))
	lines := slices.Collect(strings.Lines(out.String()))
	for i, want := range []string{
		`{"time":"2026-03-04T05:06:07.089Z","event":"contents-modified","path":"/ls/foo/dir","child":"","generation":7,"reason":"","explanation":""}`,
		`{"time":"2026-03-04T05:06:07.089Z","event":"child-added","path":"/ls/foo/dir","child":"web","generation":12,"reason":"","explanation":""}`,
		`{"time":"2026-03-04T05:06:07.089Z","event":"master-failed-over","path":"/ls/foo/dir","child":"","generation":0,"reason":"","explanation":"another master serves the cell, and events may have been lost: look again"}`,
		`{"time":"2026-03-04T05:06:07.089Z","event":"events-lost","path":"/ls/foo/dir","child":"","generation":0,"reason":"","explanation":"its\nown\u001b words"}`,
		`{"time":"2026-03-04T05:06:07.089Z","event":"handle-invalid","path":"/ls/foo/dir","child":"","generation":0,"reason":"deleted","explanation":"by ann"}`,
	} {
		if i >= len(lines) || lines[i] != want+"\n" {
			t.Errorf("line %d is not %s, in\n%s", i+1, want, out.String())
		}
	}
}

// With --contents programs get what the file has after an event, and CMD the same object on its
// standard input; what leaves the contents as they are has none.
func TestWatchContents(t *testing.T) {
	var out bytes.Buffer
	got := filepath.Join(t.TempDir(), "got")
	o := watching(&out)
	o.output, o.contents, o.exec = "json", true, "cat >>'"+got+"'"
	contents := []byte("line\n")
	o.readContents = func(context.Context) (*watchedContents, error) {
		return newWatchedContents(contents, api.Stat{Content: 9}), nil
	}
	_ = o.followEvents(t.Context(), telling(errNoMore, everyKind()[:2]...))
	want := `{"time":"2026-03-04T05:06:07.089Z","event":"contents-modified","path":"/ls/foo/dir","child":"","generation":7,"reason":"","explanation":"","content_generation":9,"contents":"line\n","contents_base64":"bGluZQo="}
{"time":"2026-03-04T05:06:07.089Z","event":"child-added","path":"/ls/foo/dir","child":"web","generation":12,"reason":"","explanation":""}
`
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
	if text, err := os.ReadFile(got); err != nil || string(text) != want {
		t.Errorf("CMD read %q, %v", text, err)
	}
	out.Reset()
	contents = []byte{0xff}
	o.exec = "exit 0" // it need not read
	o.readGeneration = func(context.Context) (api.Generation, error) { return 9, nil }
	_ = o.followEvents(t.Context(), telling(errNoMore, everyKind()[2]))
	if !strings.Contains(out.String(), `"contents_base64":"/w=="`) || strings.Contains(out.String(), `"contents":`) {
		t.Errorf("of contents that are no text it prints %s", out.String())
	}
}

func TestWatchEnds(t *testing.T) {
	var out bytes.Buffer
	o := watching(&out)
	o.count = 2
	if err := o.followEvents(t.Context(), telling(errNoMore, everyKind()...)); err != nil || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("after two events: %v, printed\n%s", err, out.String())
	}
	if err := watching(&out).followEvents(t.Context(), telling(errNoMore)); !errors.Is(err, errNoMore) {
		t.Errorf("an error of the cell became %v", err)
	}
	ctx, interrupt := context.WithCancelCause(t.Context())
	err := watching(&out).followEvents(ctx, func(context.Context) (api.Event, error) {
		interrupt(interrupted{})
		return api.Event{}, api.Cancelled
	})
	if exitCode(interruptOr(ctx, err)) != 0 {
		t.Errorf("an interrupt: %v", err)
	}
}

// A watch for which no events can come says so.
func TestWatchBegins(t *testing.T) {
	for _, c := range []struct {
		kind     api.Kind
		children bool
		want     string
	}{
		{api.Directory, false, "--children"}, {api.File, true, "no children"}, {api.File, false, ""}, {api.Directory, true, ""},
	} {
		o := watching(io.Discard)
		o.kinds, _ = wantedKinds(nil, c.children, false)
		text := o.describeWatch(c.kind)
		if advice := strings.TrimSpace(strings.SplitAfter(text, "Ctrl-C")[1]); !strings.Contains(advice, c.want) || (c.want == "") != (advice == "") {
			t.Errorf("%v, children %t: %q", c.kind, c.children, text)
		}
	}
}
