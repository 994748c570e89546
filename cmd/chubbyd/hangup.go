package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// onHangup calls f, one call at a time, for each SIGHUP until ctx ends. Then SIGHUP has its default action again. A
// process that was started to ignore it (nohup) does.
func onHangup(ctx context.Context, f func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return
	}
	came := make(chan os.Signal, 1)
	signal.Notify(came, syscall.SIGHUP)
	go func() { // ends with ctx, at the latest with the process
		defer signal.Stop(came)
		for {
			select {
			case <-came:
				f()
			case <-ctx.Done():
				return
			}
		}
	}()
}

var errHangup = errors.New("the terminal was closed (SIGHUP)")

// textOf returns a key's value, or its default.
func (d *draft) textOf(k key) string {
	if text, ok := d.texts[k.name]; ok {
		return text
	}
	return k.initial
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
