package main

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

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
	for _, k := range keys() {
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
	text, ok := d.texts[k.name]
	if !ok && k.initial != nil {
		text = k.initial(defaults())
	}
	return text
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
