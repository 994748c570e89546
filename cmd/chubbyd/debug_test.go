package main

import (
	"fmt"
	"strings"
	"testing"
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

// What is shown for a report has each key, and no part of a URL that may be a secret.
func TestShownHasNoSecrets(t *testing.T) {
	d := newDraft("flags and environment")
	for name, text := range map[string]string{
		"token-keys": "https://user:hunter2@keys.example/jwks?tenant=hunter3", "backup-to": "s3://bucket/prefix?endpoint=https://host.example&region=hunter4",
		"trace-endpoint": "https://hunter5:hunter6@spans.example:4317", "tls-key": "/etc/chubby/server.key", "cell": "main",
	} {
		for _, k := range keys() {
			if k.name == name {
				d.set(k, text, place{source: "flags and environment"})
			}
		}
	}
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
