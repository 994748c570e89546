package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// fields returns the names in one line of JSON, nested ones after a dot. It fails if there is more than one line.
func fields(t *testing.T, line []byte) []string {
	t.Helper()
	if bytes.Count(line, []byte("\n")) != 1 || !bytes.HasSuffix(line, []byte("\n")) {
		t.Fatalf("not one line: %q", line)
	}
	var object map[string]any
	if err := json.Unmarshal(line, &object); err != nil {
		t.Fatal(err)
	}
	var names []string
	var walk func(prefix string, v any)
	walk = func(prefix string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				names = append(names, prefix+name)
				walk(prefix+name+".", inner)
			}
		case []any:
			for _, inner := range v {
				walk(prefix, inner)
			}
		}
	}
	walk("", object)
	return names
}

// mustHave checks that no field that scripts depend on is missing.
func mustHave(t *testing.T, line []byte, want string) {
	t.Helper()
	got := fields(t, line)
	for name := range strings.FieldsSeq(want) {
		if !slices.Contains(got, name) {
			t.Errorf("the field %s is missing in %s", name, line)
		}
	}
}

// each returns a listing of the items.
func each[T any](list ...T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, one := range list {
			if !yield(one, nil) {
				return
			}
		}
	}
}

// A free lock has an empty list of holders: they are not unknown.
func TestEmptyListsAreLists(t *testing.T) {
	var b bytes.Buffer
	g := &globals{output: "json"}
	if err := printLocks(g.output, &b, each(client.LockInfo{Path: "/ls/foo/a", Delayed: 2 * time.Second})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"holders":[]`, `"waiters":[]`, `"delayed_s":2`, `"mode":"free"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s lacks %s", b.String(), want)
		}
	}
}

func TestTextForPeople(t *testing.T) {
	g := &globals{output: "text"}
	var b bytes.Buffer
	holder := api.Holder{Session: 42, Principal: "ann", Host: "web3", PID: 7, Reason: "deploy"}
	if err := printLocks(g.output, &b, each(client.LockInfo{
		Path: "/ls/foo/a", Mode: api.Shared, Generation: 9, Holders: []api.Holder{holder}, Revoked: "broken by bob: it hangs",
		Waiters: []client.Waiter{{Holder: api.Holder{Session: 43}, Place: 1, Mode: api.Exclusive, Waiting: 90 * time.Second, Absent: true, Estimate: 3 * time.Hour}},
	})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/ls/foo/a  shared, being taken", "s42      ann on web3 (pid 7)", "deploy", "place 1, away", "1m30s, perhaps 3h more"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	b.Reset()
	holder.Cached = true
	if err := printLocks(g.output, &b, each(client.LockInfo{Path: "/ls/foo/b", Mode: api.Exclusive, Holders: []api.Holder{holder}})); err != nil || !strings.Contains(b.String(), "exclusive, cached") {
		t.Errorf("%v, a cached lock is shown as\n%s", err, &b)
	}
	b.Reset()
	err := printStatus(g.output, &b, client.Status{Cell: "foo", Replicas: []client.ReplicaStatus{{Client: "h:1", Err: errors.New("refused")}}}, "")
	if exitCode(err) != exitUnavailable || !strings.Contains(b.String(), "refused") {
		t.Errorf("status without a master: %v, %q", err, b.String())
	}
}

// cat writes the bytes exactly.
func TestCatIsExact(t *testing.T) {
	for _, contents := range []string{"", "no newline", "two\n\n", "\x00\xff\xfe"} {
		var b bytes.Buffer
		stat := api.Stat{Path: api.MustParsePath("/ls/foo/a")}
		if err := printContents("text", &b, []byte(contents), stat); err != nil || b.String() != contents {
			t.Errorf("cat of %q wrote %q, %v", contents, b.String(), err)
		}
		b.Reset()
		if err := printContents("json", &b, []byte(contents), stat); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Contents *string
			Base64   []byte `json:"contents_base64"`
		}
		if err := json.Unmarshal(b.Bytes(), &got); err != nil || string(got.Base64) != contents {
			t.Errorf("cat -o json of %q: %s, %v", contents, b.String(), err)
		}
	}
}

// The names and texts of others give no orders to a terminal.
func TestNothingReachesTheTerminal(t *testing.T) {
	evil := "\x1b]0;title\a\nchubbyctl: forged\u202e"
	h := api.Holder{Session: 1, Principal: evil, Host: evil, Reason: evil}
	lock := client.LockInfo{Path: "/ls/local/a", Mode: api.Exclusive, Holders: []api.Holder{h}, Waiters: []client.Waiter{{Holder: h, Mode: api.Shared}}}
	for _, output := range []term.Format{term.Text, term.JSON} {
		g := &globals{output: output}
		for name, write := range map[string]func(io.Writer) error{
			"locks":    func(w io.Writer) error { return printLocks(g.output, w, each(lock)) },
			"sessions": func(w io.Writer) error { return printSessions(g.output, w, each(client.SessionInfo{Holder: h})) },
			"explain": func(w io.Writer) error {
				return printExplanation(g.output, w, client.Explanation{Lock: lock, Sentences: []string{evil}, Cachers: []client.Cacher{{Holder: h}}})
			},
			"error": func(w io.Writer) error {
				g.printError(w, &api.Error{Code: api.LockHeld, Message: "held by " + evil, Holders: []api.Holder{h}})
				return nil
			},
			"notice": func(w io.Writer) error { g.notice(w, evil); return nil },
			"event": func(w io.Writer) error {
				o := &watchOptions{globals: g, now: now, out: w}
				e := api.Event{Kind: api.EventLockLost, Path: "/ls/local/a", Explanation: evil}
				return o.printEvent(happening{Event: e, fields: newEventFields(e, o.now())})
			},
		} {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Error(err)
			}
			for line := range strings.Lines(b.String()) {
				if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return unicode.IsControl(r) || r == '\u202e' }) {
					t.Errorf("%s -o %s lets control characters through: %q", name, output, line)
				}
				if name == "error" && strings.HasPrefix(line, "chubbyctl: forged") {
					t.Errorf("a line was forged: %q", b.String())
				}
			}
		}
	}
}

// Of a node that its reader may not read, what is withheld is absent from the output: no zero stands for it.
func TestWithheldMetadataIsAbsent(t *testing.T) {
	s := api.Stat{Path: api.MustParsePath("/ls/local/pin"), Kind: api.File, Withheld: true}
	encode := func() string {
		text, err := json.Marshal(statFields(s))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got, want := encode(), `{"path":"/ls/local/pin","kind":"file","ephemeral":false,"withheld":true}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var out bytes.Buffer
	g := &globals{}
	if err := printList(g.output, &out, []api.Stat{s}, true); err != nil {
		t.Fatal(err)
	}
	if row := strings.Fields(strings.Split(out.String(), "\n")[1]); strings.Join(row, " ") != "file - - - - pin" {
		t.Errorf("ls -l says %q", out.String())
	}
	s.Content = 7 // it has just written it
	if got, want := encode(), `{"path":"/ls/local/pin","kind":"file","ephemeral":false,"withheld":true,"content_generation":7,"checksum":"0000000000000000","size":0}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// -o json says all that the text says.
func TestJSONSaysWhatTheTextSays(t *testing.T) {
	lock := client.LockInfo{Path: "/ls/local/a", Waiters: []client.Waiter{{Holder: api.Holder{Session: 7, Reason: "the nightly report"}, Place: 1, Mode: api.Exclusive}}}
	for name, one := range map[string]struct {
		print func(g *globals, out io.Writer) error
		says  string
	}{
		"why a client waits": {func(g *globals, out io.Writer) error {
			return printLocks(g.output, out, func(yield func(client.LockInfo, error) bool) { yield(lock, nil) })
		}, "the nightly report"},
		"that more hold a lock than its history lists": {func(g *globals, out io.Writer) error {
			return printHistory(g.output, out, api.History{Path: "/ls/local/a", MoreHolders: 777, Holdings: []api.Holding{{Session: 7, Mode: api.Shared, Generation: 3}}})
		}, "777"},
		"that more hold a lock that is waited for": {func(g *globals, out io.Writer) error {
			w := &lockWait{o: &workOptions{globals: g, err: out, out: io.Discard, path: api.MustParsePath("/ls/local/a")}}
			w.show(waitState{client.Queued{Place: 1, Waiting: 1, Holders: []api.Holder{{Session: 7, Host: "h"}}, MoreHolders: 777}, ""})
			return nil
		}, "777"},
		"that more have a node in their caches": {func(g *globals, out io.Writer) error {
			return printExplanation(g.output, out, client.Explanation{MoreCachers: 777, Cachers: []client.Cacher{{Holder: api.Holder{Session: 7}}}})
		}, "777"},
	} {
		for _, format := range []string{"text", "json"} {
			var out bytes.Buffer
			if err := one.print(&globals{output: term.Format(format)}, &out); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), one.says) {
				t.Errorf("as %s it does not say %s:\n%s", format, name, &out)
			}
		}
	}
}
