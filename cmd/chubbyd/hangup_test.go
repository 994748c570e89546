package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

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
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
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
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(rest)
	var o serveOptions
	newServeCommandOf(&o)
	o.config = file
	d, err := o.collect()
	if err != nil {
		t.Fatal(err)
	}
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
