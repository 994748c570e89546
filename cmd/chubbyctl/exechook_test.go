//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// The CMD for one event has ended before that for the next begins, and a CMD that fails does not end the
// watch.
func TestHookRunsOneAfterTheOther(t *testing.T) {
	t.Setenv("CHUBBY_EVENT", "of an outer watch")
	var out, remarks bytes.Buffer
	o := watching(&out)
	o.err, o.output = &remarks, "json"
	o.exec = `echo "begin $CHUBBY_EVENT $CHUBBY_PATH ${CHUBBY_CHILD-unset} $CHUBBY_GENERATION"; sleep 0.05; echo end; exit 9`
	err := hear(t.Context(), o, changing(), errNoMore, everyKind()...)
	if exitCode(err) != exitFailed || !strings.Contains(err.Error(), "nothing to watch") {
		t.Errorf("the end: %v", err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "{") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := strings.Join([]string{
		"begin contents-modified /ls/foo/dir  7", "end",
		"begin child-added /ls/foo/dir web 12", "end",
		"begin master-failed-over /ls/foo/dir  0", "end",
		"begin events-lost /ls/foo/dir  0", "end",
		"begin handle-invalid /ls/foo/dir  0", "end",
	}, "\n")
	if strings.Join(got, "\n") != want {
		t.Errorf("CMD wrote\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	if strings.Count(remarks.String(), "exit status 9") != 5 {
		t.Errorf("told of failures:\n%s", remarks.String())
	}
}

// For contents CMD runs once for each generation of them, and after a fail-over only
// if they have changed meanwhile.
func TestHookRunsForChangesOnly(t *testing.T) {
	var out bytes.Buffer
	o := watching(&out)
	o.output, o.exec = "json", `echo "ran $CHUBBY_EVENT $CHUBBY_GENERATION"`
	o.kinds = []api.EventKind{api.EventContentsModified}
	w := changing()
	w.handed = 4
	found := []api.Generation{5, 6, 6} // by a look, one after the other
	w.look = func(context.Context) (outlook, error) {
		g := found[0]
		found = found[1:]
		return outlook{content: g}, nil
	}
	wrote := func(g api.Generation) api.Event { return api.Event{Kind: api.EventContentsModified, Generation: g} }
	passedOn := api.Event{Kind: api.EventMasterFailedOver}
	_ = hear(t.Context(), o, w, errNoMore, wrote(4), wrote(5), passedOn, wrote(5), passedOn, wrote(6), passedOn, wrote(7))
	var got []string
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "ran ") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if want := "ran contents-modified 5, ran master-failed-over 0, ran contents-modified 7"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
}

// An interrupt ends CMD and all that it started; the watch ends with 0.
func TestInterruptEndsTheHook(t *testing.T) {
	fifo := newFIFO(t)
	ctx, interrupt := context.WithCancelCause(t.Context())
	var began time.Time
	firstLine(t, fifo, func() {
		began = time.Now() // to start CMD takes a while
		interrupt(interrupted{})
	})
	t.Setenv("FIFO", fifo)
	var out bytes.Buffer // CMD writes into a pipe, which closes when all of it is gone
	o := watching(&out)
	o.exec = `sleep 60 & echo >"$FIFO"; wait`
	err := hear(ctx, o, changing(), errNoMore, api.Event{Kind: api.EventContentsModified, Generation: 1})
	if err != nil || time.Since(began) >= hookGrace {
		t.Errorf("an interrupt while CMD ran: %v after %v", err, time.Since(began))
	}
}

// A process of CMD that ignores SIGTERM does not outlive the watch.
func TestInterruptKillsTheHook(t *testing.T) {
	fifo := newFIFO(t)
	ctx, interrupt := context.WithCancelCause(t.Context())
	t.Setenv("FIFO", fifo)
	o := watching(&bytes.Buffer{})
	o.exec = `exec 5>"$FIFO"; (trap "" TERM; echo >&5; sleep 60; sleep 60) & wait`
	done := make(chan error, 1)
	go func() {
		done <- hear(ctx, o, changing(), errNoMore, api.Event{Kind: api.EventContentsModified, Generation: 1})
	}()
	file, err := os.Open(fifo) // until CMD opens it
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	interrupt(interrupted{})
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := file.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, file); err != nil {
		t.Errorf("something that CMD has started still runs: %v", err)
	}
}
