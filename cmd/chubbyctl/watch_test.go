package main

import (
	"bytes"
	"cmp"
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
	o := &watchOptions{
		globals: &globals{output: "text"}, out: out, err: io.Discard, backlog: newBacklog(settling{}),
		now: func() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.Local) },
	}
	o.run = o.runHook
	return o
}

// changing is a node of which nothing was told, and that is found to be others each time.
func changing() *watched {
	found := api.Generation(0)
	return &watched{
		contents: func(context.Context) (*watchedContents, error) { return nil, api.Errorf(api.HandleClosed, "a test") },
		look: func(context.Context) (outlook, error) {
			found++
			return outlook{content: found}, nil
		},
	}
}

// hear tells o of events of a node, one after the other, and then ends with an error.
func hear(ctx context.Context, o *watchOptions, w *watched, end error, events ...api.Event) error {
	for _, e := range events {
		e.Path = cmp.Or(e.Path, "/ls/foo/dir")
		if err := o.handle(ctx, ctx, []happening{{Event: explained(e), of: w}}); err != nil {
			var last final
			if errors.As(err, &last) {
				return last.error
			}
			return err
		}
	}
	return end
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
	err := hear(t.Context(), watching(&out), changing(), errNoMore, everyKind()...)
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
	_ = hear(t.Context(), o, changing(), errNoMore, everyKind()...)
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
// standard input.
func TestWatchContents(t *testing.T) {
	var out bytes.Buffer
	got := filepath.Join(t.TempDir(), "got")
	o := watching(&out)
	o.output, o.contents, o.exec = "json", contentsText, "cat >>'"+got+"'"
	w := changing()
	w.contents = func(context.Context) (*watchedContents, error) {
		return newWatchedContents([]byte("line\n"), api.Stat{Content: 9}), nil
	}
	_ = hear(t.Context(), o, w, errNoMore, everyKind()[0])
	want := `{"time":"2026-03-04T05:06:07.089Z","event":"contents-modified","path":"/ls/foo/dir","child":"","generation":7,"reason":"","explanation":"","content_generation":9,"contents":"line\n","contents_base64":"bGluZQo="}
`
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
	if text, err := os.ReadFile(got); err != nil || string(text) != want {
		t.Errorf("CMD read %q, %v", text, err)
	}
}

// CMD never runs without the contents that --contents promises: it is said why.
func TestHookNeverLacksContents(t *testing.T) {
	binary := newWatchedContents([]byte{0xff}, api.Stat{Content: 9})
	modified, deleted := everyKind()[0], everyKind()[4]
	for _, c := range []struct {
		what      string
		form      string
		found     *watchedContents
		err       error
		event     api.Event
		runs      bool
		said      string
		continues bool
	}{
		{"text", contentsText, newWatchedContents(nil, api.Stat{Content: 9}), nil, modified, true, "", true},
		{"bytes for text", contentsText, binary, nil, modified, false, "generation 9 is not UTF-8", true},
		{"bytes", contentsBase64, binary, nil, modified, true, "", true},
		{"deleted since", contentsBase64, nil, api.Errorf(api.HandleClosed, "it is gone"), modified, false, "it is gone", true},
		{"not allowed", contentsText, nil, api.Errorf(api.PermissionDenied, "not yours"), modified, false, "not yours", true},
		{"no session", contentsText, nil, api.Errorf(api.SessionExpired, "away"), modified, false, "", false},
		{"the end", contentsText, binary, nil, deleted, false, "no contents any more", false},
	} {
		var out, said bytes.Buffer
		o, w := watching(&out), changing()
		o.contents, o.exec, o.err = c.form, "echo ran; exit 0", &said // it need not read
		w.contents = func(context.Context) (*watchedContents, error) { return c.found, c.err }
		err := hear(t.Context(), o, w, errNoMore, c.event)
		if strings.Contains(out.String(), "ran\n") != c.runs || !strings.Contains(said.String(), c.said) || (c.said == "") != (said.Len() == 0) || errors.Is(err, errNoMore) != c.continues {
			t.Errorf("%s: %v; printed %q, said %q", c.what, err, out.String(), said.String())
		}
		if c.what == "no session" && (w.handed != 0 || !errors.Is(err, api.SessionExpired)) {
			t.Errorf("%s: handed %d, %v", c.what, w.handed, err)
		}
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
		text := o.describeWatch([]watchable{&watchedNode{o: o, path: api.MustParsePath("/ls/foo/dir"), stat: api.Stat{Kind: c.kind}}})
		if advice := strings.TrimSpace(strings.SplitAfter(text, "Ctrl-C")[1]); !strings.Contains(advice, c.want) || (c.want == "") != (advice == "") {
			t.Errorf("%v, children %t: %q", c.kind, c.children, text)
		}
	}
}
