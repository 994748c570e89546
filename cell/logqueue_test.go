package cell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/raftfsm"
)

// promptly fails the test if do has not returned within limit.
func promptly(t *testing.T, limit time.Duration, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("%s takes longer than %v", what, limit)
	}
}

// A replica logs to a pipe that nothing reads: the pipe takes 64 KiB and then nothing more. The master continues,
// whatever it, or Raft and its stores, log, and stops when asked to. Lines are dropped and counted.
func TestLogIntoAFullPipe(t *testing.T) {
	unread, pipe, err := os.Pipe()
	noErr(t, err)
	defer func() { _ = unread.Close() }() // this unblocks the writer
	network := memnet.New()
	r, err := Start(t.Context(), Config{
		Bootstrap: true,
		Cell:      "local", ID: "r1", Members: []Member{{ID: "r1", Client: "c:1", Raft: "r:1"}}, Data: t.TempDir(),
		ClientListener: network.Listen("c:1"), RaftListener: network.Listen("r:1"), Dial: network.Dialer("r:1"),
		Logger: slog.New(slog.NewTextHandler(pipe, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	noErr(t, err)
	testbed.Await(t, "a master", func() bool { return r.master.Load() != nil })
	m := r.master.Load()
	promptly(t, time.Minute, "logging a thousand lines to a pipe that is full", func() {
		raftLog := peer.NewStoreLog(r.log)
		for range 2000 {
			r.log.Info("one of ours", "padding", strings.Repeat("x", 100))
			raftLog.Error("one of Raft's", "padding", strings.Repeat("x", 100))
		}
	})
	promptly(t, time.Minute, "a change by a master whose log is full", func() {
		id, _, err := m.Sessions.Create(t.Context(), raftfsm.CreateSession{Nonce: make([]byte, 16), Principal: "p", Lease: api.DefaultLease})
		if err == nil {
			err = m.Sessions.End(t.Context(), id)
		}
		report(t, err)
	})
	if n := counted(t, r, "chubby_log_lines_dropped_total"); n < 1000 {
		t.Errorf("%v lines were counted as dropped", n)
	}
	promptly(t, time.Minute, "stopping a replica whose log is full", func() {
		report(t, r.Stop(t.Context()))
	})
}

// counted returns a metric without labels.
func counted(t *testing.T, r *Replica, name string) float64 {
	t.Helper()
	families := must(r.metrics.registry.Gather())(t)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// heldLog is a log whose writes can be delayed.
type heldLog struct {
	bytes.Buffer
	gate chan struct{}
}

func (h *heldLog) Write(p []byte) (int, error) {
	<-h.gate
	return h.Buffer.Write(p)
}

// What can be written is written, in order and to the last line, as it was when
// it was logged. A line about a gap says how many lines are missing.
func TestLogQueue(t *testing.T) {
	out := &heldLog{gate: make(chan struct{})}
	queue, log := newLogQueue(slog.New(slog.NewTextHandler(out, nil)))
	list := []string{"before"}
	log.With("with", 1).WithGroup("g").Info("first", "list", list, "error", fmt.Errorf("it: %w", errors.New("failed")), "id", api.SessionID(7))
	list[0] = "after"
	const over = 10
	for i := range logQueueLength + 1 + over { // the writer has one of them
		log.Info("line", "number", i)
		if i == 0 {
			testbed.Await(t, "the writer to begin", func() bool { return len(queue.lines) == 1 })
		}
	}
	close(out.gate)
	queue.close()
	text := out.String()
	for _, want := range []string{
		`msg=first with=1 g.list=[before] g.error="it: failed" g.id=s7`, "number=0\n",
		fmt.Sprintf("number=%d\n", logQueueLength-1),
		fmt.Sprintf(`level=WARN msg="log lines are missing here: they could not be written as fast as they came" event=lines_dropped count=%d`, over+1),
	} {
		failIf(t, !strings.Contains(text, want), "the log lacks %s:\n%.2000s", want, text)
	}
	if cut := settledValue(slog.StringValue(strings.Repeat("é", logTextBytes))).String() + settledValue(slog.StringValue("x"+strings.Repeat("é", logTextBytes))).String(); !utf8.ValidString(cut) {
		t.Error("a text is cut within a character")
	}
	log.InfoContext(context.Background(), "after the end") // does not wait, and does not panic
	if long := settledValue(slog.AnyValue(strings.Repeat("x", 1<<20))).String(); len(long) > 2*logTextBytes {
		t.Errorf("a value of %d bytes is kept", len(long))
	}
}

// That lines are missing is said at whatever level is logged: what is missing then is of that level.
func TestLogQueueSaysAtEveryLevelWhatIsMissing(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		out := &heldLog{gate: make(chan struct{})}
		queue, log := newLogQueue(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level})))
		for range 2 * logQueueLength {
			log.Error("line")
		}
		close(out.gate)
		queue.close()
		if text := out.String(); strings.Count(text, "event=lines_dropped") != 1 {
			t.Errorf("%v: the log does not say once that lines are missing: %.300s", level, text[max(0, len(text)-300):])
		}
	}
}
