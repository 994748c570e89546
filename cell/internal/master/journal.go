package master

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
)

// occasion is a frequent kind of event, whose lines are sampled.
type occasion int

// The occasions. docs/logs.md explains their lines.
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
	occasions
)

// String returns the value of the field event.
func (o occasion) String() string {
	return [...]string{
		"lock_granted", "lock_released", "lock_lost", "lock_delayed", "lock_revoked", "lock_deadlock", "session_opened", "session_ending", "session_ended",
	}[o]
}

// journal is a master's only way to its log. Lines go into a bounded queue, with or without mutexes; one
// goroutine writes them without any. So a blocked log delays no caller. In each sampleTime it writes at most
// maxLines lines of an occasion, and then how many it left out. An occasion without a line costs an addition.
type journal struct {
	log     *slog.Logger
	lines   chan logLine
	counts  [occasions]atomic.Int64 // since the sample began
	dropped atomic.Int64            // lines without room since then
}

// logLine is a queued line. Nothing in it changes.
type logLine struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

const (
	maxLines   = 100              // of one occasion in sampleTime
	sampleTime = 10 * time.Second // shows a whole burst, as after a fail-over
	maxQueued  = 1024             // lines
)

func newJournal(log *slog.Logger) *journal {
	return &journal{log: log, lines: make(chan logLine, maxQueued)}
}

// admits counts an occasion, and reports whether note should write it.
func (j *journal) admits(o occasion, level slog.Level) bool {
	//mutant: return j.log.Enabled(context.Background(), level) && j.counts[o].Add(1) > 0
	return j.log.Enabled(context.Background(), level) && j.counts[o].Add(1) <= maxLines
}

// note writes an admitted occasion, with the client's request that caused it, if any.
func (j *journal) note(asked steps.RequestID, o occasion, level slog.Level, text string, attrs ...slog.Attr) {
	if asked != 0 {
		attrs = append(attrs, slog.String("request", asked.String()))
	}
	j.put(logLine{level: level, text: text, attrs: append([]slog.Attr{slog.String("event", o.String())}, attrs...)})
}

// say writes a line that stays rare, whatever clients do.
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

// run writes lines until ctx ends; flush writes the rest.
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

// flush writes the rest, after run and all callers have ended.
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

// endSample logs how many lines were left out, and restarts the counts.
func (j *journal) endSample() {
	var left []any
	for o := range occasions {
		if n := j.counts[o].Swap(0) - maxLines; n > 0 {
			left = append(left, slog.Int64(o.String(), n))
		}
	}
	dropped, level := j.dropped.Swap(0), slog.LevelInfo
	if dropped > 0 { // lines of an enabled level, so this one needs an enabled level, too
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

// Metrics counts what a master does. Its methods run with the mutex held, and only count.
type Metrics interface {
	Proposed(commands int, err error) // an entry was appended, or with err perhaps not
	SessionBegun()
	SessionEnded(why api.EndReason, unheard int)                 // unheard counts other sessions whose clients have not returned since the takeover
	LeaseExtended(unheard int)                                   // likewise
	LockGranted(name api.Name, wait time.Duration, trace string) // after a wait; trace names that of the request, if it is traced
	// TurnEnded counts how long a lock was held, by one holder or readers together; see holdTimes.
	TurnEnded(name api.Name, held time.Duration)
	ChangeWaited(wait time.Duration) // for clients to drop what they had cached
	Invalidated()                    // a client was told to drop a copy
	EventDropped()                   // because too many waited
	MutexHeld(held time.Duration)    // once for some holds; see pausingMutex
	// TakeoverCleared counts the time until the last client had dropped what an earlier master let it cache.
	TakeoverCleared(took time.Duration)
}
