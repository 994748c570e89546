package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
)

// scripted is a replica that stops as the test says.
type scripted struct {
	done    chan struct{}
	err     error
	stopped func(ctx context.Context) error
}

func (s *scripted) Done() <-chan struct{}          { return s.done }
func (s *scripted) Err() error                     { return s.err }
func (s *scripted) Log() *slog.Logger              { return slog.New(slog.DiscardHandler) }
func (s *scripted) Stop(ctx context.Context) error { return s.stopped(ctx) }

func testSettings() settings {
	s := defaults()
	s.replica = cell.Config{Cell: "c", ID: "r1", Data: "/data"}
	return s
}

// A replica that stops by itself is a failure that says why, and where its data is.
func TestServeReportsAReplicaThatStopsByItself(t *testing.T) {
	r := &scripted{done: make(chan struct{}), err: errors.New("write the log: no space left on device")}
	close(r.done)
	err := serveUntil(t.Context(), r, testSettings())
	if !errors.Is(err, r.err) || !strings.Contains(err.Error(), "/data") || exitCode(err) != 1 {
		t.Errorf("serve ended with %v (exit code %d), want the cause, the directory, and 1", err, exitCode(err))
	}
}

// A replica that stops by itself says what to do: not to start it again if its data is damaged, or the disk has I/O errors.
func TestServeLeavesAdviceToTheReplica(t *testing.T) {
	for _, cause := range []error{
		api.Errorf(api.Corrupt, "log entry 7 fails its checksum: keep this directory"),
		api.Errorf(api.Unavailable, "the disk reports an I/O error: do not trust it any more"),
		api.Errorf(api.Unavailable, "nothing is damaged: start this replica again"),
	} {
		r := &scripted{done: make(chan struct{}), err: cause}
		close(r.done)
		err := serveUntil(t.Context(), r, testSettings())
		if own := strings.ReplaceAll(err.Error(), cause.Error(), ""); !errors.Is(err, cause) || strings.Contains(own, "start") || strings.Contains(own, "disk") {
			t.Errorf("serve ended with %v", err)
		}
	}
}

// A stop asks the replica to drain, for no longer than stop-timeout.
func TestServeStopsWithinItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := &scripted{done: make(chan struct{}), stopped: func(ctx context.Context) error {
			<-ctx.Done() // a replica that cannot drain
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := serveUntil(ctx, r, testSettings()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != defaults().stop {
			t.Errorf("the stop took %v, want %v", took, defaults().stop)
		}
	})
}

func TestLogFormatAndLevel(t *testing.T) {
	var out bytes.Buffer
	s := defaults()
	s.logFormat, s.logLevel = "json", slog.LevelWarn
	log := newLogger(&out, s, s.logLevel)
	log.Info("quiet")
	log.Warn("loud")
	if got := out.String(); strings.Contains(got, "quiet") || !strings.HasPrefix(got, "{") || !strings.Contains(got, `"msg":"loud"`) {
		t.Errorf("logged %q", got)
	}
}
