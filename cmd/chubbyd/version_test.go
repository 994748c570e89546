package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	text, _, err := output(t, "version")
	if err != nil || !strings.HasPrefix(text, "chubbyd ") || !strings.Contains(text, "\nraft ") {
		t.Errorf("version: %q, %v", text, err)
	}
	if flag, _, err := output(t, "--version"); err != nil || flag != text {
		t.Errorf("--version: %q, %v; version says %q", flag, err, text)
	}
	var b build
	object, _, err := output(t, "version", "-o", "json")
	if err != nil || json.Unmarshal([]byte(object), &b) != nil || b != builtFrom() {
		t.Errorf("version -o json: %q, %v", object, err)
	}
	if _, _, err := output(t, "version", "-o", "xml"); exitCode(err) != 2 {
		t.Errorf("version -o xml: %v", err)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if script, _, err := output(t, "completion", shell); err != nil || !strings.Contains(script, "chubbyd") {
			t.Errorf("completion %s: %v, %.80q", shell, err, script)
		}
	}
	for line, want := range map[string]string{"serve --log-level ": "warn", "serve --log-st": "--log-store", "con": "config", "version -o ": "json"} {
		words := strings.Split(line, " ")
		if got, _, err := output(t, append([]string{"__complete"}, words...)...); err != nil || !strings.Contains(got, want) {
			t.Errorf("%q is completed with %q (%v), want %q among it", line, got, err, want)
		}
	}
}
