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

// logQueue decouples a replica from its log's destination. Code logs in Raft's main goroutine. If a line waited
// there for an unread pipe, the master would stop while its heartbeats went on, and no other would be elected.
// So lines go into a bounded queue, and are dropped and counted when it is full. Only the goroutine that writes
// them may block.
type logQueue struct {
	to      slog.Handler
	lines   chan logLine
	dropped atomic.Uint64 // lines, in total
	written uint64        // lines; only for the goroutine
	told    uint64        // dropped lines already reported; only for the goroutine
	closing chan struct{} // closed by close
	done    chan struct{} // closed when the goroutine has ended
}

type logLine struct {
	to     slog.Handler
	record slog.Record
}

const (
	logQueueLength = 1024
	logTextBytes   = 4 << 10     // of one attribute; longer ones are cut
	logFlushLimit  = time.Second // how long a stopping replica waits for its last lines
)

// newLogQueue returns a logger that never waits for the given one. The caller has to call close.
func newLogQueue(to *slog.Logger) (*logQueue, *slog.Logger) {
	q := &logQueue{to: to.Handler(), lines: make(chan logLine, logQueueLength), closing: make(chan struct{}), done: make(chan struct{})}
	go q.run()
	return q, slog.New(queueHandler{queue: q, to: q.to})
}

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
	_ = line.to.Handle(context.Background(), line.record) // there is nowhere else to report it
	q.written++
	// The missing lines came after those that had filled the queue.
	if len(q.lines) == 0 || q.written%logQueueLength == 0 {
		q.confess(line.record.Time)
	}
}

// confess logs how many lines are missing at this point.
func (q *logQueue) confess(at time.Time) {
	dropped, level := q.dropped.Load(), slog.LevelWarn
	if dropped == q.told {
		return
	}
	if !q.to.Enabled(context.Background(), level) {
		level = slog.LevelError // only errors are logged, so the missing lines are errors
	}
	r := slog.NewRecord(at, level, "log lines are missing here: they could not be written as fast as they came", 0)
	r.AddAttrs(slog.String("event", "lines_dropped"), slog.Uint64("count", dropped-q.told))
	q.told = dropped
	_ = q.to.Handle(context.Background(), r)
}

// close waits for a limited time until the queue is written, and leaves a hanging goroutine behind. Later lines
// are dropped.
func (q *logQueue) close() {
	close(q.closing)
	late := time.NewTimer(logFlushLimit)
	defer late.Stop()
	select {
	case <-q.done:
	case <-late.C:
	}
}

// queueHandler implements slog.Handler: it puts records into the queue.
type queueHandler struct {
	queue *logQueue
	to    slog.Handler
}

func (h queueHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.to.Enabled(ctx, level)
}

func (h queueHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return queueHandler{queue: h.queue, to: h.to.WithAttrs(attrs)}
}

func (h queueHandler) WithGroup(name string) slog.Handler {
	return queueHandler{queue: h.queue, to: h.to.WithGroup(name)}
}

// Handle implements slog.Handler; it never waits. It copies everything that may change until the record is
// written.
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

// settledValue returns a value that keeps showing what v shows now.
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
