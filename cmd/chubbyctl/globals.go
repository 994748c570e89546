package main

import (
	"io"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// globals are the flags that every command has.
type globals struct {
	output    term.Format
	timeout   time.Duration
	servers   []string
	cell      string // of paths that name none, if the flag is given; see defaultCell
	as        string
	tls       client.TLSFiles
	tokenFile string
	verbose   bool
	quiet     bool // of the verbs that run a command: nothing is said unless somebody has to act
	trace     tracing

	stop   func()               // stops catching interrupts; nil if they are not caught
	asked  func()               // is called when a signal has asked for the end; set with stop
	stderr *term.Speaker        // for notices while an operation waits; nil if there is nowhere to write them
	adapt  func(*client.Config) // for tests, which have another network and clock; may be nil
}

func (g *globals) validate() error {
	switch {
	case !g.output.IsValid():
		return usagef("-o %q: want text, wide, json or yaml", g.output)
	case g.cell != "" && !api.ValidCell(g.cell):
		return usagef("--cell %q is not a cell's name: want letters, digits, '-', '_' and '.', as in %s", g.cell, api.LocalCell)
	case (g.tls.Cert == "") != (g.tls.Key == ""):
		return usagef("--cert and --key are needed together")
	case g.timeout <= 0:
		return usagef("--timeout %v: want a positive duration, as in 15s", g.timeout)
	}
	return nil
}

// json reports whether programs read what is printed: as JSON, or as YAML with the same fields.
func (g *globals) json() bool { return g.output.ForPrograms() }

// did tells of a change: programs in any case, people with -v.
func (g *globals) did(out, remarks io.Writer, fields any, format string, args ...any) error {
	if g.json() {
		return g.output.Print(out, fields)
	}
	if g.verbose {
		term.Remark(remarks, format, args...)
	}
	return nil
}

// notice writes something that the user should know while things run.
func (g *globals) notice(w io.Writer, text string) {
	if !g.quiet {
		g.output.Notice(w, text)
	}
}
