package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// hangups are SIGHUP signals. One asks for an orderly end, since the terminal was closed, unless takeHangups
// was called: then, without a terminal, it asks to reload the configuration.
type hangups struct {
	taken  atomic.Pointer[func()]
	signal chan os.Signal
}

type hangupsKey struct{}

var errHangup = errors.New("the terminal was closed (SIGHUP)")

// withHangups returns a context that ends with the first SIGHUP that is not taken. Then SIGHUP regains its
// default action, so that the second ends the process. A process started to ignore SIGHUP (nohup) does.
func withHangups(ctx context.Context) (context.Context, *hangups) {
	h := &hangups{signal: make(chan os.Signal, 1)}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, hangupsKey{}, h))
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(h.signal, syscall.SIGHUP)
	}
	go func() { // ends with ctx, at the latest with the process
		defer cancel(nil)
		for {
			select {
			case <-h.signal:
				take := h.taken.Load()
				if take == nil {
					h.stop()
					cancel(errHangup)
					return
				}
				(*take)()
			case <-ctx.Done():
				h.stop()
				return
			}
		}
	}()
	return ctx, h
}

func (h *hangups) stop() { signal.Stop(h.signal) }

// takeHangups calls f, one call at a time, for each SIGHUP from now on.
func takeHangups(ctx context.Context, f func()) {
	if h, ok := ctx.Value(hangupsKey{}).(*hangups); ok {
		h.taken.Store(&f)
	}
}
