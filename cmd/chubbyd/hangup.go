package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
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

// reloader is the configuration of a running replica, and its changeable part.
type reloader struct {
	options *serveOptions
	draft   *draft
	level   *slog.LevelVar
	log     *slog.Logger
}

// reload reads the configuration again, applies what can change, and reports what needs a restart. With any
// fault, nothing changes.
func (r *reloader) reload() {
	next, err := r.options.collect()
	if err == nil {
		err = errorOf(next.validate())
	}
	if err != nil {
		r.log.Error("the configuration was to be read again (SIGHUP), and nothing has changed", "error", err)
		return
	}
	var restart, taken []string
	for _, k := range next.keys {
		switch {
		case next.textOf(k) == r.draft.textOf(k):
		case k.name == "log-level":
			r.level.Set(next.logLevel)
			r.draft.at[k.name], r.draft.texts[k.name] = next.at[k.name], next.textOf(k)
			taken = append(taken, k.name)
		default:
			restart = append(restart, k.name)
		}
	}
	r.log.Info("read the configuration again (SIGHUP); the files of certificates and of the keys of tokens are read by themselves when they change", "keys", taken)
	if len(restart) > 0 {
		r.log.Warn("these keys have changed and need a restart of the replica", "keys", restart)
	}
}

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
