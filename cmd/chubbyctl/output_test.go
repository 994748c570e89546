package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestJSONFields(t *testing.T) {
	g := &globals{output: "json"}
	holder := api.Holder{Session: 42, Principal: "ann", Host: "web3", PID: 7, Reason: "deploy", SinceUnix: 1}
	lock := client.LockInfo{
		Path: "/ls/foo/a", Mode: api.Exclusive, Generation: 9, Holders: []api.Holder{holder},
		Waiters: []client.Waiter{{Holder: holder, Place: 1, Mode: api.Shared, Waiting: 1500 * time.Millisecond}},
	}
	stat := api.Stat{Path: api.MustParsePath("/ls/foo/a"), Kind: api.File, Checksum: 1<<63 + 1}
	status := client.Status{
		Cell: "foo", Master: "r1",
		Replicas: []client.ReplicaStatus{{ID: "r1", Role: "master"}, {ID: "r2", Err: errors.New("silent")}},
	}
	for want, write := range map[string]func(*bytes.Buffer) error{
		"path kind ephemeral instance content_generation lock_generation acl_generation checksum size children acl acl.read acl.write acl.change modified": func(b *bytes.Buffer) error {
			return g.printStat(b, stat)
		},
		"path mode token holders delayed_s revoked waiters holders.session holders.principal holders.host holders.pid holders.since_s holders.reason " +
			"waiters.session waiters.principal waiters.host waiters.pid waiters.waiting_s waiters.estimate_s waiters.place waiters.mode": func(b *bytes.Buffer) error {
			return g.printLocks(b, each(lock))
		},
		"cell master epoch sessions nodes locks replicas.id replicas.role replicas.client replicas.term replicas.applied replicas.lag replicas.healthy replicas.version": func(b *bytes.Buffer) error {
			return g.printStatus(b, status, "")
		},
		"path token until_token mode holder.session holder.principal holder.host holder.pid holder.reason from to end lock_delay_s": func(b *bytes.Buffer) error {
			return g.printHistory(b, api.History{Path: "/ls/foo/a", Holdings: []api.Holding{{}}})
		},
		"path mode sequencer token session epoch": func(b *bytes.Buffer) error {
			return term.JSON.Print(b, acquiredFields{})
		},
		"session principal host pid lease_s left_least_s left_most_s handles locks": func(b *bytes.Buffer) error {
			return g.printSessions(b, each(client.SessionInfo{Holder: holder}))
		},
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Error(err)
		}
		mustHave(t, b.Bytes(), want)
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
	if err := g.printLocks(&b, each(client.LockInfo{Path: "/ls/foo/a", Delayed: 2 * time.Second})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"holders":[]`, `"waiters":[]`, `"delayed_s":2`, `"mode":"free"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s lacks %s", b.String(), want)
		}
	}
}

// Checksums use all 64 bits, which JSON numbers do not carry.
func TestChecksumIsText(t *testing.T) {
	var b bytes.Buffer
	if err := (&globals{output: "json"}).printStat(&b, api.Stat{Path: api.MustParsePath("/ls/foo/a"), Checksum: 1<<63 + 1}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `"checksum":"8000000000000001"`) {
		t.Errorf("checksum in %s", b.String())
	}
}

func TestTextForPeople(t *testing.T) {
	g := &globals{output: "text"}
	var b bytes.Buffer
	holder := api.Holder{Session: 42, Principal: "ann", Host: "web3", PID: 7, Reason: "deploy"}
	if err := g.printLocks(&b, each(client.LockInfo{
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
	if err := g.printLocks(&b, each(client.LockInfo{Path: "/ls/foo/b", Mode: api.Exclusive, Holders: []api.Holder{holder}})); err != nil || !strings.Contains(b.String(), "exclusive, cached") {
		t.Errorf("%v, a cached lock is shown as\n%s", err, &b)
	}
	b.Reset()
	err := g.printStatus(&b, client.Status{Cell: "foo", Replicas: []client.ReplicaStatus{{Client: "h:1", Err: errors.New("refused")}}}, "")
	if exitCode(err) != exitUnavailable || !strings.Contains(b.String(), "refused") {
		t.Errorf("status without a master: %v, %q", err, b.String())
	}
}

// cat writes the bytes exactly.
func TestCatIsExact(t *testing.T) {
	for _, contents := range []string{"", "no newline", "two\n\n", "\x00\xff\xfe"} {
		var b bytes.Buffer
		stat := api.Stat{Path: api.MustParsePath("/ls/foo/a")}
		if err := (&globals{output: "text"}).printContents(&b, []byte(contents), stat); err != nil || b.String() != contents {
			t.Errorf("cat of %q wrote %q, %v", contents, b.String(), err)
		}
		b.Reset()
		if err := (&globals{output: "json"}).printContents(&b, []byte(contents), stat); err != nil {
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
