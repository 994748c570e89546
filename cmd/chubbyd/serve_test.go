package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
		report(t, serveUntil(ctx, r, testSettings()))
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

// A process ends although nobody reads its last message.
func TestComplaintThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread, out := io.Pipe()
		defer unread.Close()
		began := time.Now()
		printLast(out, errors.New("it failed"))
		if took := time.Since(began); took != lastBound {
			t.Errorf("it gave up after %v, want %v", took, lastBound)
		}
	})
}

func TestVersion(t *testing.T) {
	text, _, err := output(t, "version")
	if err != nil || !strings.HasPrefix(text, "chubbyd ") || !strings.Contains(text, "\nraft ") {
		t.Errorf("version: %q, %v", text, err)
	}
	if flag, _, err := output(t, "--version"); err != nil || flag != text {
		t.Errorf("--version: %q, %v; version says %q", flag, err, text)
	}
	var b build
	object, _, err := output(t, "version", "-o", "json")
	if err != nil || json.Unmarshal([]byte(object), &b) != nil || b != builtFrom() {
		t.Errorf("version -o json: %q, %v", object, err)
	}
	if _, _, err := output(t, "version", "-o", "xml"); exitCode(err) != 2 {
		t.Errorf("version -o xml: %v", err)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if script, _, err := output(t, "completion", shell); err != nil || !strings.Contains(script, "chubbyd") {
			t.Errorf("completion %s: %v, %.80q", shell, err, script)
		}
	}
	for line, want := range map[string]string{"serve --log-level ": "warn", "serve --log-st": "--log-store", "con": "config", "version -o ": "json"} {
		words := strings.Split(line, " ")
		if got, _, err := output(t, append([]string{"__complete"}, words...)...); err != nil || !strings.Contains(got, want) {
			t.Errorf("%q is completed with %q (%v), want %q among it", line, got, err, want)
		}
	}
}

// Each SIGHUP is taken until the context ends, and not after that.
func TestHangups(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	came := make(chan struct{})
	count := 0
	onHangup(ctx, func() {
		if count++; count == 3 {
			cancel(errHangup)
		}
		came <- struct{}{}
	})
	for range 3 {
		noErr(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		select {
		case <-came:
		case <-time.After(10 * time.Second):
			t.Fatal("it is not taken")
		}
	}
	if !errors.Is(context.Cause(ctx), errHangup) {
		t.Error(context.Cause(ctx))
	}
}

// A configuration that is read again is taken over as far as that is possible, and says what is not.
func TestReload(t *testing.T) {
	const rest = "cell: main\nid: r1\ndata: d\ninsecure: true\nmembers: r1=h1:7421,h1:7431\n"
	file := filepath.Join(t.TempDir(), "chubbyd.yaml")
	write := func(text string) {
		t.Helper()
		noErr(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write(rest)
	var o serveOptions
	newServeCommandOf(&o)
	o.config = file
	d := must(o.collect())(t)
	var out bytes.Buffer
	r := &reloader{options: &o, draft: d, level: new(slog.LevelVar), log: slog.New(slog.NewTextHandler(&out, nil))}
	for _, c := range []struct {
		text  string
		level slog.Level
		logs  []string
	}{
		{rest, slog.LevelInfo, []string{"keys=[]"}},
		{rest + "log-level: debug\n", slog.LevelDebug, []string{"[log-level]"}},
		{rest + "log-level: debug\n", slog.LevelDebug, []string{"keys=[]"}},
		{rest + "log-level: warn\nkeepalives: 7\nslow-client: 2s\n", slog.LevelWarn, []string{"[log-level]", "need a restart", "[slow-client keepalives]"}},
		{rest + "log-level: error\nnonsense: 1\n", slog.LevelWarn, []string{"nothing has changed", "nonsense is not a key"}},
	} {
		write(c.text)
		out.Reset()
		r.reload()
		if r.level.Level() != c.level {
			t.Errorf("%q: the level is %v, want %v", c.text, r.level.Level(), c.level)
		}
		for _, want := range c.logs {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q: logged %q, want %q", c.text, out.String(), want)
			}
		}
	}
}
