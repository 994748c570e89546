package master

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// gatedLog is a log that is written to while its gate is open.
type gatedLog struct {
	gate chan struct{}
	text bytes.Buffer
}

func (l *gatedLog) Write(p []byte) (int, error) {
	<-l.gate
	return l.text.Write(p)
}

// Of an occasion there are so many lines in a sample, and one that says how many there would have been more; the next
// sample has its own.
func TestJournalSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		j := newJournal(slog.New(slog.NewTextHandler(&text, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { j.run(ctx) })
		grant := func(times int) {
			for range times {
				if j.admits(lockGranted, slog.LevelInfo) {
					j.note(0, lockGranted, slog.LevelInfo, "a lock is granted")
				}
				failIf(t, j.admits(sessionOpened, slog.LevelDebug), "what is not logged is admitted")
				synctest.Wait()
			}
		}
		grant(maxLines + 7)
		time.Sleep(sampleTime) // virtual
		synctest.Wait()
		grant(3)
		cancel()
		running.Wait()
		grant(1)
		j.flush()
		said := text.String()
		equal(t, strings.Count(said, "event=lock_granted"), maxLines+4, "%d lines")
		if n := strings.Count(said, "event=lines_left_out"); n != 1 || !strings.Contains(said, "left_out.lock_granted=7 dropped=0\n") {
			t.Errorf("%d lines say what was left out, want 1 with 7 grants:\n%s", n, said[max(0, len(said)-500):])
		}
	})
}

// An occasion that has no line costs no memory, however many there are.
func TestJournalCostsNothing(t *testing.T) {
	for name, level := range map[string]slog.Level{"sampled away": slog.LevelInfo, "not logged": slog.LevelError} {
		log := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: level}))
		r := newReports(&epoch{clock: func() session.Instant { return 0 }}, uncounted{}, log)
		left := namespace.Left{Holding: &api.Holding{End: api.ByClose}}
		for range maxLines {
			r.journal.admits(lockGranted, slog.LevelInfo)
			r.journal.admits(lockReleased, slog.LevelInfo)
		}
		if n := testing.AllocsPerRun(100, func() {
			r.lockGranted(raftfsm.ClaimResult{}, nil, nil, 1)
			r.lockLeft(left, 1)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// A log that takes no line holds no master up: locks are granted, released and lost, and what found no room is counted.
func TestJournalThatIsStuck(t *testing.T) {
	log := &gatedLog{gate: make(chan struct{})}
	inSoloLogged(t, slog.New(slog.NewTextHandler(log, nil)), nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		h := c.open(t, "/ls/local/lock", api.MayCreate).Handle
		for range 3 * maxLines {
			a := c.try(t, h, api.Exclusive)
			noErr(t, m.Locks.Release(t.Context(), c.mutation(), h, a.Generation))
		}
		for range 2 * maxQueued {
			m.epoch.reports.journal.say(slog.LevelInfo, "more than there is room for")
		}
		stopIf(t, !m.epoch.mu.mu.TryLock(), "the mutex is held")
		m.epoch.mu.mu.Unlock()
		close(log.gate)
	})
	said := log.text.String()
	if !strings.Contains(said, "event=lines_left_out") || strings.Contains(said, "dropped=0") || strings.Count(said, "event=lock_granted") != maxLines {
		t.Errorf("the log says\n%.500s\n...\n%s", said, said[max(0, len(said)-500):])
	}
}

// lateCall is told what a slow call has waited for.
type lateCall struct{ told []steps.Step }

func (*lateCall) RequestID() steps.RequestID { return 0 }
func (*lateCall) TraceID() string            { return "" }
func (c *lateCall) Step(s steps.Step)        { c.told = append(c.told, s) }

// A change whose entry takes long says so, and one that does not is told nothing; nor is the wait for a lock.
func TestSlowEntries(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		h := c.open(t, "/ls/local/lock", api.MayCreate).Handle
		for _, slow := range []time.Duration{0, steps.Slow - time.Millisecond, steps.Slow} {
			m.applying.set(func() { time.Sleep(slow) }) // virtual
			call := &lateCall{}
			ctx := context.WithValue(t.Context(), steps.CallKey{}, call)
			a, err := m.Locks.Acquire(ctx, requestFor(c.claim(h, api.Exclusive), h))
			granted := len(call.told)
			if err == nil {
				err = m.Locks.Release(ctx, c.mutation(), h, a.Generation)
			}
			noErr(t, err)
			if is, want := granted > 0, slow >= steps.Slow; is != want || (len(call.told) > granted) != want {
				t.Errorf("entries took %v; the calls were told %v", slow, call.told)
			}
		}
	})
}

// That lines had no room is said at whatever level is logged: they were of that level.
func TestJournalSaysAtEveryLevelWhatWasDropped(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		var text bytes.Buffer
		j := newJournal(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: level})))
		for range maxQueued + 5 {
			j.say(level, "a line")
		}
		j.flush()
		if said := text.String(); !strings.Contains(said, "event=lines_left_out dropped=5\n") {
			t.Errorf("%v: the log does not say that 5 lines are missing: %s", level, said[max(0, len(said)-300):])
		}
	}
}
