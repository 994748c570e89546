package cell

import (
	"bytes"
	"log/slog"
	"strings"

	"github.com/chubbylock/chubby/cell/internal/loglimit"
)

// httpErrors is the log of the http port's server, which has a line for each connection that fails and each handler that
// panics. Strangers can have as many connections fail as they like.
type httpErrors struct {
	log           *slog.Logger
	failed, panic loglimit.Refusals
}

// Write implements io.Writer, for log.Logger, which calls it for each line.
func (e *httpErrors) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if bytes.HasPrefix(line, []byte("http: panic serving")) {
		if _, ok := e.panic.Next(); ok {
			e.log.Error("a request to the http port panicked: this is a bug", "event", "bug", "error", text)
		}
	} else if n, ok := e.failed.Next(); ok {
		e.log.Warn("a connection of the http port has failed", "event", "connection_refused", "error", text, "count", n)
	}
	return len(line), nil
}
