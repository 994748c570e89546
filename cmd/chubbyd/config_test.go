package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/internal/seeds"
)

// output runs the command with arguments and returns what it wrote.
func output(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, complaints bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&complaints)
	err = root.ExecuteContext(t.Context())
	return out.String(), complaints.String(), err
}

// ran runs the command, which must succeed, and returns what it wrote to its standard output.
func ran(t *testing.T, args ...string) string {
	t.Helper()
	out, _, err := output(t, args...)
	noErr(t, err, args)
	return out
}

func TestExampleIsCompleteAndPasses(t *testing.T) {
	example := ran(t, "config", "example")
	for _, k := range keys() {
		if !strings.Contains("\n"+example, "\n"+k.name+":") {
			t.Errorf("the example does not set %s", k.name)
		}
	}
	for _, store := range cell.LogStores() {
		if !regexp.MustCompile(`(?m)^#.*\b` + string(store) + ` \(`).MatchString(example) {
			t.Errorf("no comment of the example says what the log store %s is", store)
		}
	}
	name := fileWith(t, example)
	out, complaints, err := output(t, "config", "check", name)
	if err != nil || complaints != "" || !strings.Contains(out, "ok") {
		t.Errorf("check of the example: %v, %q, %q", err, out, complaints)
	}
	d := newDraft(name)
	d.readYAML(name, []byte(example))
	if got, want := d.settings, defaults(); got.stop != want.stop || got.replica.ElectionTimeout != want.replica.ElectionTimeout || got.replica.DiskStall != want.replica.DiskStall ||
		got.logLevel != want.logLevel || got.logFormat != want.logFormat || got.replica.LogStore != want.replica.LogStore {
		t.Errorf("the example shows other values than the defaults: %+v, want %+v", got, want)
	}
}

func TestCheckReportsEveryFaultWithItsPlace(t *testing.T) {
	_, complaints, err := output(t, "config", "check", "testdata/faulty.yaml")
	if exitCode(err) != 1 {
		t.Errorf("exit code %d (%v), want 1", exitCode(err), err)
	}
	want := []struct{ at, text string }{
		{":2:7: ", "my cell"},
		{":3:5: ", "r9 is none of the members"},
		{":4:1: ", "did you mean election-timeout?"},
		{":5:1: ", "did you mean election-timeout?"},
		{":6:12: ", "loud"},
		{":7:12: ", "log-store: want one value"},
		{":12:5: ", "did you mean http?"},
		{":13:5: ", "r2's client address h1:7421 is also r1's client"},
		{":13:5: ", `r2's raft address: "7432" is not host:port`},
		{":16:5: ", "r1 is there twice, first at testdata/faulty.yaml:9"},
		{":16:5: ", "others must be able to reach"},
		{":16:5: ", "no port from 1 to 65535"},
		{":19:5: ", "want the fields id, client, raft and http"},
		{":20:15: ", "1ms is outside 1s to 10m0s"},
		{":21:1: ", "log-level is set twice, first in line 6"},
		{"faulty.yaml: ", "data is missing"},
		{"faulty.yaml: ", "tls-cert is missing"},
	}
	lines := strings.Split(strings.TrimSpace(complaints), "\n")
	for _, w := range want {
		found := false
		for i, line := range lines {
			if strings.Contains(line, w.at) && strings.Contains(line, w.text) {
				lines = append(lines[:i], lines[i+1:]...)
				found = true
				break
			}
		}
		if !found {
			t.Errorf("no complaint at %q about %q", w.at, w.text)
		}
	}
	if len(lines) > 0 {
		t.Errorf("unexpected complaints:\n%s", strings.Join(lines, "\n"))
	}
}

func TestCheckOfWhatIsNoConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		"":              "cell is missing",
		"- a\n- b\n":    "list of keys and values",
		"cell: [":       "yaml",
		"members: []\n": "members: is empty",
		"members: x=y":  "ID=CLIENT,RAFT",
		"data: ~\n":     "there is no value",
		"cell: &a b\nid: *a\ninsecure-principals: maybe\n": "neither true nor false",
	} {
		name := fileWith(t, text)
		if _, complaints, err := output(t, "config", "check", name); err == nil || !strings.Contains(complaints, want) {
			t.Errorf("check of %q: %v, %q; want a complaint with %q", text, err, complaints, want)
		}
	}
}

func TestFlagBeatsVariableBeatsFile(t *testing.T) {
	text := "cell: fromfile\nid: r1\ndata: fromfile\nlog-level: debug\nmembers: r1=h1:1,h1:2\ninsecure: true\n"
	name := fileWith(t, text)
	t.Setenv("CHUBBYD_CONFIG", name)
	t.Setenv("CHUBBYD_DATA", "fromenv")
	t.Setenv("CHUBBYD_LOG_LEVEL", "warn")
	t.Setenv("CHUBBYD_STOP_TIMEOUT", "3s")
	var o serveOptions
	noErr(t, newServeCommandOf(&o).ParseFlags([]string{"--log-level", "error", "--insecure-principals"}))
	s := must(o.collect())(t)
	noErr(t, errorOf(s.validate()))
	got := []string{s.replica.Cell, s.replica.Data, s.logLevel.String(), s.stop.String()}
	want := []string{"fromfile", "fromenv", "ERROR", "3s"}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %q, want %q", got, want)
			break
		}
	}
	if !s.replica.InsecurePrincipals {
		t.Error("--insecure-principals without a value does not set it")
	}
}

func TestFaultsNameFlagsAndVariables(t *testing.T) {
	t.Setenv("CHUBBYD_ELECTION_TIMEOUT", "soon")
	_, _, err := output(t, "serve", "--cell", "c", "--id", "r1", "--data", "d", "--members", "r1=h1,h2:2")
	for _, want := range []string{"CHUBBYD_ELECTION_TIMEOUT: ", "--members: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not blame %q", err, want)
		}
	}
}

func TestCommandLineFaultsAreUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"fly"}, {"serve", "--nonsense"}, {"serve", "extra"}, {"config"}, {"config", "chek"}, {"config", "check"},
		{"dev", "--replicas", "0"}, {"dev", "--replicas", "11"}, {"dev", "--base-port", "65510"}, {"dev", "--cell", "a/b"},
	} {
		if _, _, err := output(t, args...); exitCode(err) != 2 {
			t.Errorf("chubbyd %q: exit code %d (%v), want 2", args, exitCode(err), err)
		}
	}
}

func TestParseMembers(t *testing.T) {
	got, err := parseMembers(" r1=h1:1,h1:2,h1:3 ; r2=h2:1,h2:2;")
	want := []cell.Member{{ID: "r1", Client: "h1:1", Raft: "h1:2", HTTP: "h1:3"}, {ID: "r2", Client: "h2:1", Raft: "h2:2"}}
	if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("parseMembers: %v, %v; want %v", got, err, want)
	}
}

// Everything after the first document would be ignored without a word.
func TestSecondDocument(t *testing.T) {
	for text, want := range map[string]string{
		exampleConfig + "---\nlog-level: loud\n": "a second document",
		exampleConfig + "---\n: [":               "yaml",
		"---\n" + exampleConfig + "...\n":        "",
		"":                                       "is missing",
	} {
		name := fileWith(t, text)
		_, complaints, err := output(t, "config", "check", name)
		if (err == nil) != (want == "") || !strings.Contains(complaints, want) {
			t.Errorf("%.30q… is to be blamed for %q: %v, %s", text[max(0, len(text)-30):], want, err, complaints)
		}
	}
}

// FuzzReadYAML checks that a replica can be started with every configuration that passes.
func FuzzReadYAML(f *testing.F) {
	seeds.Add(f)
	f.Add([]byte(exampleConfig))
	f.Add([]byte("members: [{id: r1}, 3, [x]]\nid: {a: b}\n"))
	f.Add([]byte("cell: &a x\nid: *a\n? [complex]\n: key\n"))
	if faulty, err := os.ReadFile("testdata/faulty.yaml"); err == nil {
		f.Add(faulty)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := newDraft("fuzz")
		d.readYAML("fuzz", text)
		if len(d.validate()) > 0 {
			return
		}
		c := d.replica
		self := false
		for _, m := range c.Members {
			self = self || m.ID == c.ID
			if m.Client == "" || m.Raft == "" || m.Client == m.Raft {
				t.Errorf("member %+v passed", m)
			}
		}
		if !self || c.Cell == "" || c.Data == "" || c.ElectionTimeout < 50*time.Millisecond {
			t.Errorf("configuration %+v passed", c)
		}
	})
}

// check finds all that serve would refuse.
func TestCheckRefusesWhatServeRefuses(t *testing.T) {
	member := func(id, client, raft string) string { return id + "=" + client + "," + raft }
	for what, test := range map[string]struct{ key, text, problem string }{
		"a long id":             {"members", member("r1", "127.0.0.1:1", "127.0.0.1:2") + ";" + member(strings.Repeat("r", 65), "127.0.0.1:3", "127.0.0.1:4"), "no replica's id"},
		"a long address":        {"members", member("r1", strings.Repeat("h", 256)+":1", "127.0.0.1:2"), "255"},
		"one port for two":      {"members", member("r1", "public.example.org:7421", "private.example.org:7421"), "the same port"},
		"a port listened twice": {"listen", ":7421,127.0.0.1:7421", "the same port"},
		"a long advertise":      {"advertise", strings.Repeat("h", 256) + ":1", "255"},
		"not a number":          {"keepalives", "NaN", "not a number"},
		"two hosts, one port":   {"listen", "127.0.0.1:7421,127.0.0.2:7421", ""},
	} {
		name := filepath.Join(t.TempDir(), "chubbyd.yaml")
		values := map[string]string{"cell": "main", "id": "r1", "data": "/d", "insecure": "true", "members": member("r1", "127.0.0.1:1", "127.0.0.1:2"), test.key: test.text}
		var text strings.Builder
		for key, value := range values {
			text.WriteString(key + ": '" + value + "'\n")
		}
		noErr(t, os.WriteFile(name, []byte(text.String()), 0o600))
		_, complaints, err := output(t, "config", "check", name)
		if (err != nil) != (test.problem != "") || !strings.Contains(complaints, test.problem) {
			t.Errorf("%s: %v\n%s", what, err, complaints)
		}
	}
}

// show prints where each value comes from, and a configuration that says the same.
func TestConfigShow(t *testing.T) {
	file := fileWith(t, "cell: main\nid: r1\nlog-level: warn\ninsecure: true\nmembers:\n  - {id: r1, client: h1:7421, raft: h1:7431, http: h1:7441}\n  - {id: r2, client: h2:7421, raft: h2:7431}\n")
	t.Setenv("CHUBBYD_LOG_FORMAT", "json")
	shown := ran(t, "config", "show", "--config", file, "--data", "/srv/chubby", "--log-level", "error")
	for key, want := range map[string]string{
		"cell": `main +# .*chubbyd.yaml:1:7`, "log-level": "error +# --log-level", "log-format": "json +# CHUBBYD_LOG_FORMAT", "data": "/srv/chubby +# --data",
		"members": `r1=h1:7421,h1:7431,h1:7441;r2=h2:7421,h2:7431 +# .*chubbyd.yaml:5:1`, "log-store": "wal +# default", "insecure": `"?true"? +# .*:4:11`,
	} {
		if !regexp.MustCompile("(?m)^" + key + ": " + want + "$").MatchString(shown) {
			t.Errorf("%s: want %q in\n%s", key, want, shown)
		}
	}
	again := fileWith(t, shown)
	if out, complaints, err := output(t, "config", "check", again); err != nil || !strings.Contains(out, "2 members: ok") {
		t.Errorf("what is shown: %v\n%s%s", err, out, complaints)
	}
	if out, _, err := output(t, "config", "show", "--cell", "main"); exitCode(err) != 1 || !strings.Contains(out, "# data:") {
		t.Errorf("of a configuration that is not complete: %v\n%s", err, out)
	}
}

// must returns what a call returned that had to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noErr(t, err)
		return value
	}
}

// noErr ends the test if there is an error; what says of what.
func noErr(t testing.TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(append(what, err)...)
	}
}

// report fails the test if there is an error, and lets it go on.
func report(t testing.TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Error(append(what, err)...)
	}
}

// fileWith makes a file with that text, and returns its name.
func fileWith(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "chubbyd.yaml")
	noErr(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// draftWith returns a draft with these settings.
func draftWith(texts map[string]string) *draft {
	d := newDraft("test")
	for name, text := range texts {
		k, _ := d.find(name)
		d.set(k, text, place{source: "--" + name})
	}
	return d
}

// errOf returns the error of a call alone.
func errOf[T any](_ T, err error) error { return err }
