package cell

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// newRaftLog returns a logger for hashicorp/raft and its stores that writes to
// logger. The libraries log addresses, indexes, terms and file names; they
// never log the contents of entries.
func newRaftLog(logger *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Off})
	l.RegisterSink(raftLogSink{logger})
	return l
}

// raftLogSink receives what the libraries log.
type raftLogSink struct{ logger *slog.Logger }

// Accept implements hclog.SinkAdapter. It is for any goroutine.
func (s raftLogSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	if msg == "failed to decode incoming command" {
		level = hclog.Debug // what raft says whenever a peer's connection ends
	}
	attrs := make([]any, 0, len(args)+2)
	if name != "" {
		attrs = append(attrs, "library", name)
	}
	for _, arg := range args {
		if format, ok := arg.(hclog.Format); ok && len(format) > 0 {
			arg = fmt.Sprintf(fmt.Sprint(format[0]), format[1:]...)
		}
		attrs = append(attrs, arg)
	}
	// What raft calls information is news for whoever debugs an election, not
	// for an operator.
	switch {
	case level >= hclog.Error:
		s.logger.Error(msg, attrs...)
	case level == hclog.Warn:
		s.logger.Warn(msg, attrs...)
	default:
		s.logger.Debug(msg, attrs...)
	}
}
