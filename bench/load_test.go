package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// lasting is an operation that always takes that long, and has its lock after half of it.
func lasting(took time.Duration) operation {
	return func(_ context.Context, held func()) error {
		time.Sleep(took / 2)
		held()
		time.Sleep(took - took/2)
		return nil
	}
}

func TestLoadMeasuresWaitsSharesAndProcessorTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		used := func() usage { // half of a processor, a tenth, and 1 MB/s
			return usage{servers: time.Since(began) / 2, generator: time.Since(began) / 10, sent: 1000 * time.Since(began).Milliseconds()}
		}
		got, err := runLoad(t.Context(), plan{warm: time.Second, measure: 4 * time.Second, used: used}, []operation{
			lasting(10 * time.Millisecond), lasting(40 * time.Millisecond),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got.Ops != 500 || got.Fewest != 0.4 || got.Most != 1.6 {
			t.Errorf("%d operations, shares %v to %v; want 400 + 100, 0.4 to 1.6", got.Ops, got.Fewest, got.Most)
		}
		if got.WaitMean.Round(100*time.Microsecond) != 8*time.Millisecond || got.WaitMax.Round(100*time.Microsecond) != 20*time.Millisecond {
			t.Errorf("waits %v in the mean, %v at most; want 8 ms, 20 ms", got.WaitMean, got.WaitMax)
		}
		if got.ServerCPU != 4*time.Millisecond || got.ClientCPU != 800*time.Microsecond {
			t.Errorf("processor time of an operation %v and %v, want 4 ms and 0.8 ms", got.ServerCPU, got.ClientCPU)
		}
		if got.Bytes != 8000 {
			t.Errorf("%d bytes an operation, want 8,000", got.Bytes)
		}
	})
}

func TestProcessorTimeIsThatOfTheTree(t *testing.T) {
	busy, err := startChild(t.TempDir(), "busy", nil, keepCommand, "sh", "-c", "while :; do :; done")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := busy.stop(); err != nil {
			t.Error(err)
		}
	}()
	deadline := time.Now().Add(2 * time.Minute)
	for processorTime([]int{busy.pid()}) < 200*time.Millisecond { // the keeper, its parent, uses next to none
		if time.Now().After(deadline) {
			t.Fatalf("a busy loop below process %d has used %v in two minutes", busy.pid(), processorTime([]int{busy.pid()}))
		}
		<-time.After(time.Millisecond) // which leaves the processors to the loop
	}
}

func TestGapIsTheLongestTimeWithoutAnAnswer(t *testing.T) {
	origin := time.Now()
	g := &gap{last: origin}
	for _, answer := range []struct {
		at  time.Duration
		err error
	}{{10, nil}, {30, errors.New("no leader")}, {80, nil}, {90, nil}} {
		g.note(origin.Add(answer.at*time.Millisecond), answer.err)
	}
	if widest := g.restart(); widest != 70*time.Millisecond {
		t.Errorf("widest gap %v, want 70 ms: a failure is no answer", widest)
	}
	if g.answeredSince(origin.Add(60*time.Millisecond)) || !g.answeredSince(origin.Add(30*time.Millisecond)) {
		t.Error("the answer at 90 ms counts for a kill at 30 ms, and not for one at 60 ms")
	}
}
