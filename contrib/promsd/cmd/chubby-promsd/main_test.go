package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A configuration that is wrong is refused, with the name of the field and the exit code 2.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ text, want string }{
		{`{"jobs": [{"name": "web", "path": "/ls/local/web", "file": "DIR/web.json"}], "lease": "3s", "listen": "127.0.0.1:0"}`, ""},
		{`{"jobs": [{"name": "web", "path": "/ls/local/web"}]}`, "jobs[0].file"},
		{`{"jobs": [{"name": "web", "path": "/ls/local/web", "file": "DIR/web.txt"}]}`, "Jobs[0].File"},
		{`{"jobs": [], "listen": "127.0.0.1:0"}`, "Jobs"},
		{`{"lease": "1h"}`, "lease"},
		{`{"listen": "9000"}`, "listen"},
		{`{"job": []}`, "job"},
		{`{} {}`, "after the object"},
		{`{"servers": ["nowhere"], "listen": ":0", "jobs": [{"name": "web", "path": "/ls/local/web"}]}`, "servers[0]"},
	} {
		file := filepath.Join(dir, "promsd.json")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(c.text, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		code := run(t.Context(), []string{"-config", file, "-check"}, &said)
		if c.want == "" && code != 0 || c.want != "" && (code != 2 || !strings.Contains(said.String(), c.want)) {
			t.Errorf("%s: %d, %s", c.text, code, &said)
		}
	}
	var said bytes.Buffer
	if code := run(t.Context(), nil, &said); code != 2 || !strings.Contains(said.String(), "-config") {
		t.Errorf("without arguments: %d, %s", code, &said)
	}
	said.Reset()
	if code := run(t.Context(), []string{"-h"}, &said); code != 0 || !strings.Contains(said.String(), "-check") {
		t.Errorf("-h: %d, %s", code, &said)
	}
}
