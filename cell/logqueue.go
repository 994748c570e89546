package cell

import (
	"context"
	"encoding"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// logQueue keeps a replica apart from where its log goes. Lines are logged under
// the master's mutex and in Raft's main goroutine; if one of them waited for a
// pipe that nobody reads, the master would stop, and its heartbeats would go on,
// so that nobody else would be elected. So a line is put into a queue of bounded
// length, and dropped and counted if that is full; one goroutine, the only one
// that may be held up, writes them in their order.
type logQueue struct {
	to      slog.Handler
	lines   chan logLine
	dropped atomic.Uint64 // lines, ever
	written uint64        // lines; the goroutine's own
	told    uint64        // how many dropped lines the log speaks of; the goroutine's own
	closing chan struct{} // closed by close
	done    chan struct{} // closed when the goroutine has ended
}

// logLine is a record and the handler that is to write it.
type logLine struct {
	to     slog.Handler
	record slog.Record
}

const (
	logQueueLength = 1024
	logTextBytes   = 4 << 10     // of one attribute; longer ones are cut
	logFlushLimit  = time.Second // that a replica which stops waits for its last lines
)

// newLogQueue returns a logger that never waits for the one it is given. close
// has to be called.
func newLogQueue(to *slog.Logger) (*logQueue, *slog.Logger) {
	q := &logQueue{to: to.Handler(), lines: make(chan logLine, logQueueLength), closing: make(chan struct{}), done: make(chan struct{})}
	go q.run()
	return q, slog.New(queueHandler{queue: q, to: q.to})
}

// run writes lines until close, and then those that are left.
func (q *logQueue) run() {
	defer close(q.done)
	for {
		select {
		case line := <-q.lines:
			q.write(line)
			continue
		case <-q.closing:
		}
		select {
		case line := <-q.lines:
			q.write(line)
		default:
			return
		}
	}
}

func (q *logQueue) write(line logLine) {
	_ = line.to.Handle(context.Background(), line.record) // there is no other place to say so
	q.written++
	// The lines that are missing came after those that had filled the queue.
	if len(q.lines) == 0 || q.written%logQueueLength == 0 {
		q.confess(line.record.Time)
	}
}

// confess says in the log how many lines are missing there.
func (q *logQueue) confess(at time.Time) {
	dropped, level := q.dropped.Load(), slog.LevelWarn
	if dropped == q.told {
		return
	}
	if !q.to.Enabled(context.Background(), level) {
		level = slog.LevelError // only errors are logged, so it is these that are missing
	}
	r := slog.NewRecord(at, level, "log lines are missing here: they could not be written as fast as they came", 0)
	r.AddAttrs(slog.String("event", "lines_dropped"), slog.Uint64("count", dropped-q.told))
	q.told = dropped
	_ = q.to.Handle(context.Background(), r)
}

// close waits until what was logged has been written, for a bounded time: the
// goroutine is left behind in a write that does not return. What is logged after
// close is dropped.
func (q *logQueue) close() {
	close(q.closing)
	late := time.NewTimer(logFlushLimit)
	defer late.Stop()
	select {
	case <-q.done:
	case <-late.C:
	}
}

// queueHandler puts records into the queue.
type queueHandler struct {
	queue *logQueue
	to    slog.Handler
}

// Enabled implements slog.Handler.
func (h queueHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.to.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h queueHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return queueHandler{queue: h.queue, to: h.to.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h queueHandler) WithGroup(name string) slog.Handler {
	return queueHandler{queue: h.queue, to: h.to.WithGroup(name)}
}

// Handle implements slog.Handler; it never waits. The record is written later, so
// it takes nothing along that may change until then.
func (h queueHandler) Handle(_ context.Context, r slog.Record) error {
	settled := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		settled.AddAttrs(slog.Attr{Key: a.Key, Value: settledValue(a.Value)})
		return true
	})
	select {
	case h.queue.lines <- logLine{to: h.to, record: settled}:
	default:
		h.queue.dropped.Add(1)
	}
	return nil
}

// settledValue returns a value that shows what v shows now, whatever happens to
// what v refers to.
func settledValue(v slog.Value) slog.Value {
	v = v.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(cutText(v.String()))
	case slog.KindGroup:
		var group []slog.Attr
		for _, a := range v.Group() {
			group = append(group, slog.Attr{Key: a.Key, Value: settledValue(a.Value)})
		}
		return slog.GroupValue(group...)
	case slog.KindAny:
	default:
		return v
	}
	one := v.Any()
	if kind := reflect.ValueOf(one).Kind(); kind >= reflect.Bool && kind <= reflect.Complex128 {
		if named, ok := one.(fmt.Stringer); ok {
			return slog.StringValue(named.String()) // an id, a code: the same in JSON as in text
		}
		return v
	}
	switch one := one.(type) {
	case error: // also one that marshals itself
	case encoding.TextMarshaler:
		if text, err := one.MarshalText(); err == nil {
			return slog.StringValue(cutText(string(text)))
		}
	}
	return slog.StringValue(cutText(fmt.Sprintf("%+v", one)))
}

func cutText(text string) string {
	if len(text) <= logTextBytes {
		return text
	}
	end := logTextBytes
	for end > logTextBytes-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end-- // not within a character
	}
	return text[:end] + "..."
}
