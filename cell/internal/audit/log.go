package audit

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/cell/internal/loglimit"
	"github.com/chubbylock/chubby/session"
)

// Config configures a Log.
type Config struct {
	Cell, Replica string
	File          string // its name, or Stdout
	Size          int64  // of a file, in bytes, after which it is renamed
	Files         int    // that were renamed, and are kept; 0: nothing is renamed
	Wall          func() int64
	Clock         session.Clock
	Logger        *slog.Logger
	Failed        func() // called for each act that was not written, and each time that a file could not be renamed
}

// Stdout is the name of the process's standard output, for journals.
const Stdout = "stdout"

// Limits of the queue, and of bounded records. A refusal has some 300 bytes.
const (
	maxQueue         = 1024         // records
	maxBounded       = maxQueue / 2 // of them, if more of these are not taken
	actWait          = time.Second
	boundedPerSecond = 4 << 10 // bytes
	boundedAtOnce    = 256 << 10
	omittedEvery     = 10 * time.Second
)

// entry is a record that waits for the disk.
type entry struct {
	Record
	line    []byte
	bounded bool // anybody can make any number of these: it goes into the file of refusals
}

// omission is how many records have no line.
type omission struct {
	all     int
	unknown int // of them, of Unknown
}

// Log is an audit log. A nil Log takes records, and keeps none.
type Log struct {
	cfg     Config
	refused string // the name of the file of bounded records
	entries chan entry
	closing chan struct{} // closed when no more can come
	ended   chan struct{}
	failed  loglimit.Refusals
	coming  sync.WaitGroup // callers that put a record into the queue

	mu      sync.Mutex      // guards what follows
	closed  bool            // no record may be put into the queue any more
	allowed float64         // bytes of bounded records that may go in now; negative after a record that had more
	earned  session.Instant // when that was last added to
	omitted omission        // records without a line, not counted in one yet
}

// RefusedFile returns the name of the file of refusals beside an audit log: audit-refused.log beside audit.log.
func RefusedFile(name string) string {
	kind := filepath.Ext(name)
	return strings.TrimSuffix(name, kind) + "-refused" + kind
}

// Open opens the files, and creates absent ones. An irregular file, such as a pipe, also gets the refusals.
func Open(cfg Config) (*Log, error) {
	acts := newFile(cfg)
	if err := acts.open(); err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	refused := acts
	if acts.info != nil && acts.info.Mode().IsRegular() {
		beside := cfg
		beside.File = RefusedFile(cfg.File)
		refused = newFile(beside)
		if err := refused.open(); err != nil {
			acts.close()
			return nil, fmt.Errorf("open the audit log's file of refusals: %w", err)
		}
	}
	l := &Log{
		cfg: cfg, refused: refused.cfg.File, entries: make(chan entry, maxQueue), closing: make(chan struct{}), ended: make(chan struct{}),
		allowed: boundedAtOnce, earned: cfg.Clock(),
	}
	go func() {
		defer close(l.ended)
		l.write(acts, refused)
	}()
	return l, nil
}

// Act records the acts of one call that has ended: done, or perhaps done by a caller with the right. It returns when
// the records are in the queue, and waits for room there for actWait at most, also if the caller is gone.
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
		e := entry{Record: r, line: r.line(maxField)}
		switch {
		case !entered:
			l.lost(e, errClosed)
			continue
		case l.offer(e):
			continue
		case late == nil:
			late = time.NewTimer(actWait)
			defer late.Stop()
		}
		if !isLate {
			select {
			case l.entries <- e:
				continue
			case <-late.C:
				isLate = true
			}
		}
		l.lost(e, fmt.Errorf("%d records wait for the disk", maxQueue))
	}
}

// Refused records a refusal, unless there are too many of them.
func (l *Log) Refused(r Record) { l.bounded(r, Refusal) }

// Unknown records an act that may have been done by a caller without a known right: perhaps the call ended before it
// was checked. Strangers can cause any number of these, so they are bounded together with refusals.
func (l *Log) Unknown(r Record) { l.bounded(r, Act) }

func (l *Log) bounded(r Record, kind Event) {
	if l == nil || !l.enter() {
		return
	}
	defer l.coming.Done()
	if r = l.complete(r, kind); len(l.entries) < maxBounded && l.allow(0) {
		e := entry{Record: r, line: r.line(maxBoundedField), bounded: true}
		if l.offer(e) {
			l.allow(len(e.line))
			return
		}
	}
	l.omit(omissionOf(r))
}

// omissionOf counts a bounded record that has no line.
func omissionOf(r Record) omission {
	switch r.Event {
	case Omitted:
		return omission{all: r.Count, unknown: r.Unknown}
	case Act:
		return omission{all: 1, unknown: 1}
	default:
		return omission{all: 1}
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
func (l *Log) offer(e entry) bool {
	select {
	case l.entries <- e:
		return true
	default:
		return false
	}
}

// allow reports whether a bounded record may go in, and counts that many bytes. A record is encoded only once it may
// go in, since that costs more than to count it: bytes above the allowance are owed.
func (l *Log) allow(bytes int) bool {
	now := l.cfg.Clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if since := now.Sub(l.earned); since > 0 { // another caller may have read the clock later, and come first
		l.allowed, l.earned = min(l.allowed+boundedPerSecond*since.Seconds(), boundedAtOnce), now
	}
	was := l.allowed
	l.allowed -= float64(bytes)
	return was > 0
}

// takeOmitted returns a record that counts those without a line, if there are any.
func (l *Log) takeOmitted() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.omitted.all == 0 {
		return nil
	}
	r := l.complete(Record{Count: l.omitted.all, Unknown: l.omitted.unknown}, Omitted)
	l.omitted = omission{}
	return []entry{{Record: r, line: r.line(maxBoundedField), bounded: true}}
}

// complete adds the time, the replica and the kind.
func (l *Log) complete(r Record, kind Event) Record {
	r.Time = time.Unix(l.cfg.Wall(), 0).UTC().Format(time.RFC3339)
	r.Cell, r.Replica, r.Event = l.cfg.Cell, l.cfg.Replica, kind
	return r
}

// lost logs, in the replica's log, a record that could not be written; a bounded one at most once a second, and the
// next line counts it.
func (l *Log) lost(e entry, why error) {
	if !e.bounded {
		l.cfg.Failed()
		l.cfg.Logger.Error("an act could not be written to the audit log", "event", "audit_fails", "file", l.cfg.File, "error", why, "record", string(e.line))
		return
	}
	l.omit(omissionOf(e.Record))
	if n, ok := l.failed.Next(); ok {
		l.cfg.Logger.Error("refusals could not be written to the audit log", "event", "audit_fails", "file", l.refused, "error", why, "count", n, "record", string(e.line))
	}
}

// Close writes the queue, and closes the files. Later acts go to the replica's log.
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
func (l *Log) write(acts, refused *file) {
	defer acts.close()
	defer refused.close()
	flush := time.NewTicker(omittedEvery)
	defer flush.Stop()
	all := true // of the last batch was written
	for {
		select {
		case e := <-l.entries:
			var first []entry
			if !all {
				first = l.takeOmitted()
			}
			all = l.batch(acts, refused, append(append(first, e), l.waiting()...))
		case <-flush.C:
			l.batch(acts, refused, l.takeOmitted())
		case <-l.closing:
			l.batch(acts, refused, l.waiting())
			l.batch(acts, refused, l.takeOmitted()) // of this batch, too
			for _, e := range l.takeOmitted() {
				l.cfg.Logger.Error("refusals have no line in the audit log", "event", "audit_fails", "file", l.refused, "count", e.Count, "unknown", e.Unknown)
			}
			return
		}
	}
}

// waiting empties the queue.
func (l *Log) waiting() (entries []entry) {
	for len(entries) < maxQueue {
		select {
		case e := <-l.entries:
			entries = append(entries, e)
		default:
			return entries
		}
	}
	return entries
}

// batch writes records into their files, and syncs a file that got an act. It reports whether all were written.
func (l *Log) batch(acts, refused *file, entries []entry) (all bool) {
	all = true
	done := map[*file][]entry{} // acts
	for _, e := range entries {
		into := acts
		if e.bounded {
			into = refused
		}
		if err := into.write(e.line, !e.bounded); err != nil {
			l.lost(e, err)
			all = false
		} else if e.Event == Act {
			done[into] = append(done[into], e)
		}
	}
	for into, synced := range done {
		if err := into.sync(); err != nil {
			for _, e := range synced {
				l.lost(e, err)
			}
		}
	}
	return all
}
