package cell

import (
	"context"
	"log/slog"
	"strings"

	"github.com/chubbylock/chubby/cell/internal/loglimit"
)

// httpErrors is the log of the http server, with a line for each failed connection and each panic of a handler.
// It limits the lines, since strangers can cause failures.
type httpErrors struct {
	log           *slog.Logger
	failed, panic loglimit.Refusals
}

var _ slog.Handler = (*httpErrors)(nil)

func (*httpErrors) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler. The record has only a message.
func (e *httpErrors) Handle(_ context.Context, r slog.Record) error {
	text := strings.TrimSpace(r.Message)
	if strings.HasPrefix(text, "http: panic serving") {
		if _, ok := e.panic.Next(); ok {
			e.log.Error("a request to the http port panicked: this is a bug", "event", "bug", "error", text)
		}
	} else if n, ok := e.failed.Next(); ok {
		e.log.Warn("a connection of the http port has failed", "event", "connection_refused", "error", text, "count", n)
	}
	return nil
}

func (e *httpErrors) WithAttrs([]slog.Attr) slog.Handler { return e }

func (e *httpErrors) WithGroup(string) slog.Handler { return e }
