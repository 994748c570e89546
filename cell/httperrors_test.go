package cell

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// A handler that panics is told as a bug, however many connections of strangers fail meanwhile.
func TestPanicsAreNotLostAmongStrangers(t *testing.T) {
	var text bytes.Buffer
	server := slog.NewLogLogger(&httpErrors{log: slog.New(slog.NewTextHandler(&text, nil))}, slog.LevelWarn)
	for range 1000 {
		server.Print("http: TLS handshake error from 192.0.2.1:1: EOF\n")
	}
	server.Print("http: panic serving 192.0.2.1:1: oops\ngoroutine 1\n")
	if said := text.String(); strings.Count(said, "\n") != 2 || strings.Count(said, "event=connection_refused") != 1 || strings.Count(said, "event=bug") != 1 || !strings.Contains(said, "oops") {
		t.Errorf("the log says\n%s", said)
	}
}
