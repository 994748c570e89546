package processes_test

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
)

// within waits until something is so.
func within(t *testing.T, limit time.Duration, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(limit)
	for !so() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// TestCell has its parts share a cell: to build chubbyd and start it takes longer than they do.
func TestCell(t *testing.T) {
	c := processes.Start(t, 3)
	t.Run("kills", func(t *testing.T) { killMasters(t, c) })
	t.Run("signals", func(t *testing.T) { stopReplicas(t, c) })
}

// Masters that are killed have successors, come back by themselves, and lose nothing.
func killMasters(t *testing.T, c *processes.Cell) {
	k, err := client.Keep(t.Context(), client.Config{Servers: c.Servers()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	put := func(text string) {
		t.Helper()
		if err := k.Do(t.Context(), func(s *client.Client) error { _, err := s.Put(t.Context(), "/ls/local/f", []byte(text)); return err }); err != nil {
			t.Fatal(err)
		}
	}
	status := func() (s client.Status) {
		t.Helper()
		if err := k.Do(t.Context(), func(one *client.Client) (err error) { s, err = one.Cell().Status(t.Context()); return err }); err != nil {
			t.Fatal(err)
		}
		return s
	}
	put("before")
	first, master := status(), c.Master()
	c.KillMaster()
	if next := status(); next.Epoch <= first.Epoch {
		t.Errorf("epoch %d after the kill, %d before", next.Epoch, first.Epoch)
	}
	within(t, time.Minute, "the killed one is back", func() bool {
		s := status()
		return !slices.ContainsFunc(s.Replicas, func(r client.ReplicaStatus) bool { return r.Err != nil })
	})

	put("meanwhile")
	before := status().Epoch
	kills := c.KillMastersFor(t.Context(), 100*time.Millisecond, 5*time.Second, 2)
	if epochs := status().Epoch - before; kills < 2 || epochs < api.Epoch(kills) {
		t.Errorf("%d masters were killed, in %d epochs; %s was the first", kills, epochs, master)
	}
	if err := k.Do(t.Context(), func(s *client.Client) error {
		text, _, err := s.Get(t.Context(), "/ls/local/f")
		if string(text) != "meanwhile" {
			t.Errorf("the file has %q", text)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// A cell whose replicas are all stopped does not answer, and does again.
func stopReplicas(t *testing.T, c *processes.Cell) {
	asker, err := client.Dial(t.Context(), client.Config{Servers: c.Servers()})
	if err != nil {
		t.Fatal(err)
	}
	defer asker.Close()
	answers := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		s, err := asker.Status(ctx)
		return err == nil && s.Master != ""
	}
	within(t, time.Minute, "all are back, and it answers", func() bool {
		s, err := asker.Status(t.Context())
		return err == nil && s.Master != "" && !slices.ContainsFunc(s.Replicas, func(r client.ReplicaStatus) bool { return r.Err != nil })
	})
	c.Signal(syscall.SIGSTOP)
	if answers() {
		t.Error("it answers although it is stopped")
	}
	c.Signal(syscall.SIGCONT, "r1", "r2", "r3")
	within(t, time.Minute, "it answers again", answers)
}
