package audit

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/chubbylock/chubby/cell/internal/loglimit"
	"github.com/chubbylock/chubby/session"
)

// Config is what a Log is told.
type Config struct {
	Cell, Replica string
	File          string // its name, or Stdout
	Size          int64  // of a file, in bytes, after which it is renamed
	Files         int    // that were renamed, and are kept; 0: nothing is renamed
	Wall          func() int64
	Clock         session.Clock
	Logger        *slog.Logger
	Failed        func() // is called for each act that was not written, and each time that a file could not be renamed
}

// Stdout is the name of the process's standard output, for journals.
const Stdout = "stdout"

// Bounds of what waits for the disk and of refusals.
const (
	maxQueue          = 1024 // records
	actWait           = time.Second
	refusalsPerSecond = 10
	refusalsAtOnce    = 1000
	omittedEvery      = 10 * time.Second
)

// omission is how many records have no line.
type omission struct {
	all     int
	unknown int // of them, of Unknown
}

// Log is an audit log. A nil Log takes records, and keeps none.
type Log struct {
	cfg     Config
	records chan Record
	closing chan struct{} // closed when no more can come
	ended   chan struct{}
	failed  loglimit.Refusals
	coming  sync.WaitGroup // who is putting a record into the queue

	mu      sync.Mutex      // guards what follows
	closed  bool            // nobody may begin to put a record into the queue
	allowed float64         // refusals that may go in now
	earned  session.Instant // when that was last added to
	omitted omission        // what did not, and no line counts yet
}

// Open opens the file, which is created if it is absent, and starts to write to it.
func Open(cfg Config) (*Log, error) {
	f := newFile(cfg)
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	l := &Log{
		cfg: cfg, records: make(chan Record, maxQueue), closing: make(chan struct{}), ended: make(chan struct{}),
		allowed: refusalsAtOnce, earned: cfg.Clock(),
	}
	go func() {
		defer close(l.ended)
		l.write(f)
	}()
	return l, nil
}

// Act records what was done by one call, or may have been by who had the right to do it, after the call has ended. It returns when the
// records are in the queue; it waits for room there for actWait at most, and no less because the caller is gone.
func (l *Log) Act(records ...Record) {
	if l == nil || len(records) == 0 {
		return
	}
	entered := l.enter()
	if entered {
		defer l.coming.Done()
	}
	var late *time.Timer
	isLate := false
	for _, r := range records {
		r = l.complete(r, Act)
		switch {
		case !entered:
			l.lost(r, errClosed)
			continue
		case l.offer(r):
			continue
		case late == nil:
			late = time.NewTimer(actWait)
			defer late.Stop()
		}
		if !isLate {
			select {
			case l.records <- r:
				continue
			case <-late.C:
				isLate = true
			}
		}
		l.lost(r, fmt.Errorf("%d records wait for the disk", maxQueue))
	}
}

// Refused records a refusal, unless there are too many of them.
func (l *Log) Refused(r Record) { l.bounded(r, Refusal) }

// Unknown records what may have been done, though nobody knows of a right that its caller has: the call ended before it was looked at, perhaps.
// Strangers can have as many of these as of refusals, and they are bounded together.
func (l *Log) Unknown(r Record) { l.bounded(r, Act) }

func (l *Log) bounded(r Record, kind Event) {
	if l == nil || !l.enter() {
		return
	}
	defer l.coming.Done()
	if !l.allow() || !l.offer(l.complete(r, kind)) {
		missing := omission{all: 1}
		if kind == Act {
			missing.unknown = 1
		}
		l.omit(missing)
	}
}

// omit counts records that have no line, until takeOmitted.
func (l *Log) omit(more omission) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.omitted.all += more.all
	l.omitted.unknown += more.unknown
}

// enter reports whether the log is open; then coming.Done is to be called.
func (l *Log) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.coming.Add(1)
	}
	return !l.closed
}

// offer puts a record into the queue if there is room.
func (l *Log) offer(r Record) bool {
	select {
	case l.records <- r:
		return true
	default:
		return false
	}
}

// allow reports whether a refusal may go in.
func (l *Log) allow() bool {
	now := l.cfg.Clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if since := now.Sub(l.earned); since > 0 { // another caller may have read the clock later, and come first
		l.allowed, l.earned = min(l.allowed+refusalsPerSecond*since.Seconds(), refusalsAtOnce), now
	}
	if l.allowed < 1 {
		return false
	}
	l.allowed--
	return true
}

// takeOmitted returns a record of those that no line counts, if there are any.
func (l *Log) takeOmitted() []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.omitted.all == 0 {
		return nil
	}
	r := l.complete(Record{Count: l.omitted.all, Unknown: l.omitted.unknown}, Omitted)
	l.omitted = omission{}
	return []Record{r}
}

// complete says when, where and what kind of record it is.
func (l *Log) complete(r Record, kind Event) Record {
	r.Time = time.Unix(l.cfg.Wall(), 0).UTC().Format(time.RFC3339)
	r.Cell, r.Replica, r.Event = l.cfg.Cell, l.cfg.Replica, kind
	return r
}

// lost says in the replica's log what could not be written, and why. Refusals are said once a second, and counted in the next line that is written.
func (l *Log) lost(r Record, why error) {
	line := string(r.line())
	switch r.Event {
	case Act:
		l.cfg.Failed()
		l.cfg.Logger.Error("an act could not be written to the audit log", "event", "audit_fails", "file", l.cfg.File, "error", why, "record", line)
		return
	case Omitted:
		l.omit(omission{all: r.Count, unknown: r.Unknown})
	default:
		l.omit(omission{all: 1})
	}
	if n, ok := l.failed.Next(); ok {
		l.cfg.Logger.Error("refusals could not be written to the audit log", "event", "audit_fails", "file", l.cfg.File, "error", why, "count", n, "record", line)
	}
}

// Close writes what waits, and closes the file. What is recorded afterwards goes to the replica's log.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.coming.Wait() // at most actWait
	close(l.closing)
	<-l.ended
}

// write writes records until the log is closed.
func (l *Log) write(f *file) {
	defer f.close()
	flush := time.NewTicker(omittedEvery)
	defer flush.Stop()
	all := true // of the last batch was written
	for {
		select {
		case r := <-l.records:
			var first []Record
			if !all {
				first = l.takeOmitted()
			}
			all = l.batch(f, append(append(first, r), l.waiting()...))
		case <-flush.C:
			l.batch(f, l.takeOmitted())
		case <-l.closing:
			l.batch(f, l.waiting())
			l.batch(f, l.takeOmitted()) // of this batch, too
			for _, r := range l.takeOmitted() {
				l.cfg.Logger.Error("refusals have no line in the audit log", "event", "audit_fails", "file", l.cfg.File, "count", r.Count, "unknown", r.Unknown)
			}
			return
		}
	}
}

// waiting takes what is in the queue.
func (l *Log) waiting() (records []Record) {
	for len(records) < maxQueue {
		select {
		case r := <-l.records:
			records = append(records, r)
		default:
			return records
		}
	}
	return records
}

// batch writes records, and syncs the file if there is an act among them. It reports whether all are written.
func (l *Log) batch(f *file, records []Record) (all bool) {
	var acts []Record
	all = true
	for _, r := range records {
		if err := f.write(r.line(), r.Event == Act); err != nil {
			l.lost(r, err)
			all = false
		} else if r.Event == Act {
			acts = append(acts, r)
		}
	}
	if len(acts) == 0 {
		return all
	}
	if err := f.sync(); err != nil {
		for _, r := range acts {
			l.lost(r, err)
		}
	}
	return all
}
