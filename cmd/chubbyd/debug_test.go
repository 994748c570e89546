package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/internal/tokens"
)

// The last lines are kept, whole, and no more than their bound, however many there were.
func TestTailKeepsLastLines(t *testing.T) {
	var k tail
	const lines = 100_000
	for i := range lines {
		fmt.Fprintf(&k, "line %d of a log\n", i)
	}
	text := string(k.text())
	if len(text) > logKept || len(text) < logKept-100 || !strings.HasPrefix(text, "line ") || !strings.HasSuffix(text, fmt.Sprintf("\nline %d of a log\n", lines-1)) {
		t.Errorf("%d bytes are kept: %.40q to %q", len(text), text, text[max(0, len(text)-40):])
	}
}

// A report shows each key, and no part of a URL that may be a secret.
func TestShownHasNoSecrets(t *testing.T) {
	d := draftWith(map[string]string{
		"token-keys": "https://user:hunter2@keys.example/jwks?tenant=hunter3", "backup-to": "s3://bucket/prefix?endpoint=https://host.example&region=hunter4",
		"trace-endpoint": "https://hunter5:hunter6@spans.example:4317", "tls-key": "/etc/chubby/server.key", "cell": "main",
	})
	shown := string(d.shown())
	if strings.Contains(shown, "hunter") {
		t.Errorf("it shows a secret:\n%s", shown)
	}
	for _, want := range []string{"keys.example/jwks", "s3://bucket/prefix", "/etc/chubby/server.key", "cell: main", "max-contents-mib: "} {
		if !strings.Contains(shown, want) {
			t.Errorf("it does not show %s:\n%s", want, shown)
		}
	}
	var said tail
	fmt.Fprintf(&said, "level=ERROR error=%q\n{\"error\":\"s3://bucket/prefix?endpoint=https://host.example\\u0026region=hunter4\"}\n", "Get \"https://user:hunter2@keys.example/jwks?tenant=hunter3\": no")
	if text := string(d.debug(&said)["log"]()); strings.Contains(text, "hunter") || !strings.Contains(text, "keys.example/jwks?left-out") || !strings.Contains(text, "bucket/prefix?left-out") {
		t.Errorf("the log: %s", text)
	}
	if d.texts["token-keys"] != "https://user:hunter2@keys.example/jwks?tenant=hunter3" {
		t.Error("the configuration itself has changed")
	}
}

// Of every URL in a text the user and the query are left out, in whatever way it is written.
func TestWithoutSecrets(t *testing.T) {
	for text, want := range map[string]string{
		"no URL: a@b?c":             "no URL: a@b?c",
		"https://host:1/path: no":   "https://host:1/path: no",
		"https://TOKEN:***@host/a":  "https://left-out@host/a",
		"https://user:p/w@host/a":   "https://left-out@host/a",
		"https://user:p?w@host/a":   "https://left-out",
		"https://host?a=b@c:":       "https://left-out",
		"https://host#token":        "https://host?left-out",
		`"a \"https://u@h?q\": no"`: `"a \"https://left-out@h?left-out\": no"`,
		`{"a":"s3://b?endpoint=https://h\u0026k=v","b":"http://u@h"}`: `{"a":"s3://b?left-out","b":"http://left-out@h"}`,
	} {
		if got := withoutSecrets(text); got != want {
			t.Errorf("%s is shown as %s; want %s", text, got, want)
		}
	}
}

// A replica that cannot read its keys logs the URL as package net/http writes it: with *** in place of the password. The user
// before that may be the secret, for example a token.
func TestDebugHidesUsersOfURLs(t *testing.T) {
	const jwks = "https://hunter2:x-oauth-basic@127.0.0.1:1/jwks"
	d := draftWith(map[string]string{"token-keys": jwks})
	store, err := tokens.Open(t.Context(), tokens.Config{Keys: jwks, Issuer: "i", Audience: "a"})
	noErr(t, err)
	_, err = store.Refresh(t.Context())
	var said tail
	newLogger(&said, d.settings, slog.LevelInfo).Error("the keys of tokens cannot be read", "error", err)
	if text := string(d.debug(&said)["log"]()); strings.Contains(text, "hunter2") {
		t.Errorf("the bundle has the user of the URL: %s", text)
	}
}

// A configuration that is read again, and is refused, is named in the log with its URL. The bundle has that log.
func TestDebugHidesWhatWasReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chubbyd.yaml")
	write := func(keys string) {
		t.Helper()
		text := "cell: main\nid: r1\ndata: /tmp/r1\nmembers:\n  - {id: r1, client: 'h1:7421', raft: 'h1:7431'}\ninsecure: true\ntoken-keys: " + keys + "\n"
		noErr(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("https://user:old@keys.example/jwks")
	o := new(serveOptions)
	newServeCommandOf(o)
	o.config = file
	d := must(o.collect())(t)
	var said tail
	debug := d.debug(&said)
	write("http://user:hunter2@keys.example/jwks?tenant=hunter3") // without the s
	(&reloader{options: o, draft: d, level: new(slog.LevelVar), log: newLogger(&said, d.settings, slog.LevelInfo)}).reload()
	text := string(debug["log"]())
	if !strings.Contains(text, "nothing has changed") {
		t.Fatalf("it was taken over: %s", text)
	}
	if strings.Contains(text, "hunter") {
		t.Errorf("the bundle has a secret: %s", text)
	}
}
