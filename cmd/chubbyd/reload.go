package main

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// reloader is the configuration of a replica that runs, and what of it can change.
type reloader struct {
	options *serveOptions
	draft   *draft
	level   *slog.LevelVar
	log     *slog.Logger
}

// reload reads the configuration again, takes over what can be, and says what needs a restart. If there is
// anything wrong with it, nothing changes.
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

// textOf returns what a key is set to, or its default.
func (d *draft) textOf(k key) string {
	text, ok := d.texts[k.name]
	if !ok && k.initial != nil {
		text = k.initial(defaults())
	}
	return text
}

// isTerminal reports whether r is a terminal.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
