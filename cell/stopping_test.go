package cell

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
)

// A stop ends in bounded time, also when something hangs in the disk, and says so:
// the process that waits for it has to end.
func TestStopEndsThoughTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		r := &Replica{
			cfg: Config{ID: "r1", Data: "d"}, handing: make(chan struct{}, 1), reigned: make(chan struct{}), done: make(chan struct{}),
			cancel: func(error) {}, grpc: grpc.NewServer(),
		}
		r.logs, r.log = newLogQueue(slog.New(slog.DiscardHandler))
		close(r.reigned)
		r.work.Go(func() { <-hangs })
		late := errors.New("it is late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, late)
		defer cancel()
		began, stopped := time.Now(), make(chan error, 1)
		go func() { stopped <- r.Stop(ctx) }()
		select {
		case err := <-stopped:
			if took := time.Since(began); !errors.Is(err, late) || took < 10*time.Second {
				t.Errorf("it stopped after %v: %v", took, err)
			}
		case <-time.After(time.Minute):
			t.Error("it does not return")
		}
		close(hangs)
		<-r.Done()
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("once it has stopped: %v", err)
		}
	})
}
