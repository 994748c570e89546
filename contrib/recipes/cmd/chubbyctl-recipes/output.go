package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/supervise"
)

// The exit codes are those of chubbyctl. A command that runs under an item adds its own.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnavailable = 69
	exitLost        = 74
	exitUncertain   = 76
	exitDenied      = 77
	exitWaited      = 124
	exitBySignal    = 128 // plus the number of the signal
)

// exitError gives an error, or a command that ended by itself, its exit code.
type exitError struct {
	code int
	err  error // nil if there is nothing to say
}

func (e *exitError) Error() string { return fmt.Sprint(e.err) }
func (e *exitError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// outOfTime is the cause of a context that --timeout has ended.
type outOfTime struct{ after time.Duration }

func (o outOfTime) Error() string {
	return fmt.Sprintf("the cell did not answer within %v; raise --timeout, or look at 'chubbyctl cell status'", o.after)
}

// Unwrap makes it a DeadlineExceeded for errors.Is.
func (o outOfTime) Unwrap() error { return context.DeadlineExceeded }

// exitCode returns the exit code of an error: its own, or that of its kind.
func exitCode(err error) int {
	var (
		own    *exitError
		notRun *supervise.NotRunError
		signal interrupted
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &notRun):
		return notRun.Code
	case errors.As(err, &signal):
		return exitBySignal + supervise.Number(signal.signal)
	case errors.Is(err, api.Uncertain):
		return exitUncertain
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, client.OlderMaster):
		return exitUnavailable
	}
	switch api.CodeOf(err) {
	case api.InvalidPath, api.InvalidArgument:
		return exitUsage
	case api.Unavailable, api.NotMaster, api.StaleEpoch, api.DeadlineExceeded:
		return exitUnavailable
	case api.PermissionDenied, api.Unauthenticated:
		return exitDenied
	}
	return exitFailed
}

// errorFields is an error as programs are shown it.
type errorFields struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Op      string `json:"op,omitempty"`
	Path    string `json:"path,omitempty"`
	Replica string `json:"replica,omitempty"`
	Master  string `json:"master,omitempty"`
	Cell    string `json:"cell,omitempty"`
	Request string `json:"request,omitempty"`
	Exit    int    `json:"exit"`
}

// printError prints an error in the format of -o, and nothing for a CMD that ended with an exit code of its own. For people, what was
// joined has a line each.
func (g *globals) printError(err error) {
	own := (*exitError)(nil)
	switch {
	case err == nil, errors.As(err, &own) && own.err == nil:
	case g.json():
		f := errorFields{Code: api.CodeOf(err).String(), Message: err.Error(), Exit: exitCode(err)}
		if e := (*api.Error)(nil); errors.As(err, &e) {
			f.Op, f.Path, f.Replica, f.Master, f.Cell, f.Request = e.Op, e.Path, e.Replica, e.Master, e.Cell, e.Request
		} else if f.Exit == exitUsage {
			f.Code = api.InvalidArgument.String()
		}
		_ = g.object(g.stderr, map[string]errorFields{"error": f}) // there is nowhere to report it
	default:
		for line := range strings.SplitSeq(err.Error(), "\n") {
			g.say("%s", line)
		}
	}
}

// printer writes to standard output, and keeps the first error: a part of an answer must not be taken for the whole.
type printer struct {
	w      io.Writer
	failed error
}

func (p *printer) Write(text []byte) (int, error) {
	n, err := p.w.Write(text)
	if p.failed == nil {
		p.failed = err
	}
	return n, err
}

// object writes one object for programs: as a line of JSON, which is a document of YAML, too.
func (g *globals) object(w io.Writer, v any) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	text := visible(strings.TrimSuffix(line.String(), "\n")) + "\n"
	if g.output == "yaml" {
		text = "---\n" + text
	}
	_, err := io.WriteString(w, text)
	return err
}

// visible escapes what a terminal would obey or not show, in text that others have chosen. JSON means the same then.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// table writes rows in columns. A cell without text is a dash.
func (g *globals) table(rows [][]any) error {
	t := tabwriter.NewWriter(g.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			text := visible(fmt.Sprint(cell))
			if text == "" {
				text = "-"
			}
			fmt.Fprint(t, text, map[bool]string{true: "\n", false: "\t"}[i == len(row)-1])
		}
	}
	return t.Flush()
}

// say writes a line for people to standard error.
func (g *globals) say(format string, args ...any) {
	fmt.Fprintln(g.stderr, "chubbyctl:", visible(fmt.Sprintf(format, args...)))
}

// warn writes something after which somebody may have to act.
func (g *globals) warn(text string) {
	if !g.json() {
		g.say("%s", text)
	} else {
		_ = g.object(g.stderr, map[string]string{"notice": text}) // if it cannot be written, nobody reads it
	}
}

// notice writes what the user may want to know, and what passes by itself, unless it is to be quiet.
func (g *globals) notice(text string) {
	if !g.quiet {
		g.warn(text)
	}
}
