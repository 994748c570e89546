package e2e

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A planned hand-over, by chubbyctl cell transfer or because the master is stopped by SIGTERM, disturbs
// no session: locks stay held, no session is in jeopardy, and writes and reads stop for a fifth of a
// second at most.
func TestTransfer(t *testing.T) {
	w := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience(time.Minute))
	defer cancel()
	var jeopardies atomic.Int64
	cfg := client.Config{OnState: func(client.StateChange) { jeopardies.Add(1) }}
	if !alone() {
		cfg.Lease = api.MaxLease // for a disk that takes seconds
	}
	c := w.client(cfg)
	held, err := w.handle(ctx, c, "/ls/local/lock").Acquire(ctx, api.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	h := w.handle(ctx, w.client(client.Config{NoCache: true}), "/ls/local/file")
	for _, by := range []string{"transfer", "transfer", "transfer", "SIGTERM"} {
		for _, work := range []struct {
			name string
			do   func() error
		}{
			{"write", func() error { _, err := h.SetContents(ctx, []byte("x")); return err }},
			{"read", func() error { _, _, err := h.Contents(ctx); return err }},
		} {
			longest, took := w.whileHandedOver(by, work.do)
			t.Logf("%s: the longest %s took %v, the hand-over %v", by, work.name, longest.Round(time.Millisecond), took.Round(time.Millisecond))
			limit := 200 * time.Millisecond
			if !*full {
				limit *= 5 // for the race detector
			}
			if longest > patience(limit) {
				t.Errorf("%s: a %s took %v", by, work.name, longest)
			}
		}
	}
	if held.Err() != nil || jeopardies.Load() > 0 {
		t.Errorf("the lock: %v; the session changed its state %d times", held.Err(), jeopardies.Load())
	}
}

// whileHandedOver works on while the master hands over, and returns how long the
// longest piece of work took, and how long it was until another was the master.
func (w *world) whileHandedOver(by string, work func() error) (longest, took time.Duration) {
	w.t.Helper()
	stop, done := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var longest time.Duration
		for {
			select {
			case <-stop:
				done <- longest
				return
			default:
			}
			began := time.Now()
			if err := work(); err != nil {
				w.t.Error(err)
				done <- longest
				return
			}
			longest = max(longest, time.Since(began))
		}
	}()
	before := w.status()
	began := time.Now()
	if by == "transfer" {
		w.must("cell", "transfer")
	} else if err := syscall.Kill(w.replicas()[before.Master].PID, syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	for after := before; after.Epoch <= before.Epoch || after.Master == ""; {
		text := w.do("-o", "json", "cell", "status").out // it fails while there is no master
		if err := json.Unmarshal([]byte(text), &after); err != nil || time.Since(began) > patience(10*time.Second) {
			w.t.Fatalf("%s is still the master: %v %s", before.Master, err, text)
		}
	}
	took = time.Since(began)
	close(stop)
	return <-done, took
}
