package master

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/cell/internal/steps"
)

// occasion is a kind of event of which very many may happen in a second, so that its lines are sampled.
type occasion int

// The occasions. docs/logs.md says what the lines of each mean.
const (
	lockGranted occasion = iota
	lockReleased
	lockLost
	lockDelayed
	lockRevoked
	lockDeadlock
	sessionOpened
	sessionEnding
	sessionEnded
	occasions // how many there are
)

// String is the value of the field event.
func (o occasion) String() string {
	return [...]string{
		"lock_granted", "lock_released", "lock_lost", "lock_delayed", "lock_revoked", "lock_deadlock", "session_opened", "session_ending", "session_ended",
	}[o]
}

// journal is the only way from a master to its log. Lines are put into a queue of bounded length, with or without mutexes
// held, and written by one goroutine, which holds none: a log that cannot be written to holds nobody up. Of each
// occasion there are maxLines lines at most in sampleTime, and then one that says how many were left out. An occasion without a
// line costs an addition.
type journal struct {
	log     *slog.Logger
	lines   chan logLine
	counts  [occasions]atomic.Int64 // since the sample began
	dropped atomic.Int64            // lines for which there was no room, since then
}

// logLine is a line that waits. Nothing that it has may change any more.
type logLine struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

const (
	maxLines   = 100              // of one occasion, in
	sampleTime = 10 * time.Second // so that a burst, as of a fail-over, is there as a whole
	maxQueued  = 1024             // lines
)

func newJournal(log *slog.Logger) *journal {
	return &journal{log: log, lines: make(chan logLine, maxQueued)}
}

// admits counts an occasion, and reports whether it is to have a line: note.
func (j *journal) admits(o occasion, level slog.Level) bool {
	//mutant: return j.log.Enabled(context.Background(), level) && j.counts[o].Add(1) > 0
	return j.log.Enabled(context.Background(), level) && j.counts[o].Add(1) <= maxLines
}

// note writes the line of an occasion that was admitted.
func (j *journal) note(o occasion, level slog.Level, text string, attrs ...slog.Attr) {
	j.put(logLine{level: level, text: text, attrs: append([]slog.Attr{slog.String("event", o.String())}, attrs...)})
}

// say writes a line of which there are few, however much clients do.
func (j *journal) say(level slog.Level, text string, attrs ...slog.Attr) {
	if j.log.Enabled(context.Background(), level) {
		j.put(logLine{level: level, text: text, attrs: attrs})
	}
}

func (j *journal) put(line logLine) {
	select {
	case j.lines <- line:
	default:
		j.dropped.Add(1)
	}
}

// run writes lines until ctx ends. What comes later, flush writes.
func (j *journal) run(ctx context.Context) {
	sample := time.NewTicker(sampleTime)
	defer sample.Stop()
	for {
		select {
		case line := <-j.lines:
			j.write(line)
		case <-sample.C:
			j.endSample()
		case <-ctx.Done():
			return
		}
	}
}

// flush writes what is left. Nobody puts lines any more, and run has ended.
func (j *journal) flush() {
	for {
		select {
		case line := <-j.lines:
			j.write(line)
			continue
		default:
		}
		break
	}
	j.endSample()
}

func (j *journal) write(line logLine) {
	j.log.LogAttrs(context.Background(), line.level, line.text, line.attrs...)
}

// endSample says how many lines were left out, and begins to count again.
func (j *journal) endSample() {
	var left []any
	for o := range occasions {
		if n := j.counts[o].Swap(0) - maxLines; n > 0 {
			left = append(left, slog.Int64(o.String(), n))
		}
	}
	dropped, level := j.dropped.Swap(0), slog.LevelInfo
	if dropped > 0 { // lines of a level that is logged: so this one has to be, too
		for _, level = range []slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			if j.log.Enabled(context.Background(), level) {
				break
			}
		}
	}
	if len(left) > 0 || dropped > 0 {
		j.write(logLine{level: level, text: fmt.Sprintf("lines were left out: of each event there are at most %d in %v", maxLines, sampleTime), attrs: []slog.Attr{
			slog.String("event", "lines_left_out"), slog.Group("left_out", left...), slog.Int64("dropped", dropped),
		}})
	}
}

// noteAsked is note with the request of a client that has caused it, if one has. It says something of a lock or a session, with the fields
// that docs/logs.md lists, while what the log did is observed, with epoch.mu held.
func (j *journal) noteAsked(asked steps.RequestID, o occasion, text string, attrs ...slog.Attr) {
	if asked != 0 {
		attrs = append(attrs, slog.String("request", asked.String()))
	}
	j.note(o, slog.LevelInfo, text, attrs...)
}
