package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// Whoever names a bucket that is reached in the clear is told so, each time.
func TestBackupInTheClearIsToldSo(t *testing.T) {
	for name, want := range map[string]bool{"s3://b/x.backup?endpoint=http://minio:9000": true, "s3://b/x.backup?endpoint=https://minio:9000": false, "x.backup": false} {
		var told bytes.Buffer
		g := &globals{stderr: term.NewSpeaker(&told)}
		if _, _, err := g.fileAt(name); err != nil {
			t.Fatal(err)
		}
		g.stderr.Finish(false)
		if strings.Contains(told.String(), "without encryption") != want {
			t.Errorf("%s: %q", name, told.String())
		}
	}
}
