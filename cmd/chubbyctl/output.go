package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/chubbylock/chubby/api"
)

// printJSON writes one object as one line.
func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escapeInvisible(b.Bytes()))
	return err
}

// escapeInvisible escapes what a terminal would obey or not show, and
// encoding/json writes as it is: it means the same to whoever reads the JSON.
func escapeInvisible(line []byte) []byte {
	if !bytes.ContainsFunc(line, escapable) {
		return line
	}
	var b bytes.Buffer
	for _, r := range string(line) {
		if !escapable(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.Bytes()
}

func escapable(r rune) bool { return r != '\n' && invisible(r) }

// notice tells the user something while things run.
func (g *globals) notice(w io.Writer, text string) {
	if g.json() {
		// Nobody reads it if it cannot be written.
		_ = printJSON(w, map[string]string{"notice": text})
		return
	}
	remark(w, "%s", text)
}

// remark writes a line for people to standard error. The word it begins with
// says what it means.
func remark(w io.Writer, format string, args ...any) {
	meaning, text := plain, printable(fmt.Sprintf(format, args...))
	switch {
	case strings.HasPrefix(text, "jeopardy"):
		meaning = trouble
	case strings.HasPrefix(text, "waiting"):
		meaning = waiting
	}
	fmt.Fprintln(w, "chubbyctl: "+styleOf(w).on(meaning, text))
}

// seconds is a duration for programs, exact to the millisecond.
func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// roughly is a duration for people.
func roughly(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < 24*time.Hour:
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// guess shows a duration that nobody knows exactly: "40s", "4m", "3h".
func guess(d time.Duration) string {
	unit := time.Second
	switch {
	case d > 2*time.Hour:
		unit = time.Hour
	case d > 2*time.Minute:
		unit = time.Minute
	}
	text := max(d.Round(unit), unit).String()
	for _, nothing := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, nothing) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// known is a number of seconds, or null for what is not known.
func known(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	s := seconds(d)
	return &s
}

// holderFields is one who holds a lock, as -o json shows it.
type holderFields struct {
	Session   string `json:"session"`
	Principal string `json:"principal"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	SinceS    int64  `json:"since_s"`
	Reason    string `json:"reason"`
}

func newHolderFields(h api.Holder) holderFields {
	return holderFields{h.Session.String(), h.Principal, h.Host, h.PID, int64(since(h.SinceUnix).Seconds()), h.Reason}
}

// whoIs names a holder for people: "ann on web3 (pid 4711, s42)".
func whoIs(h api.Holder) string {
	if h.PID != 0 {
		return fmt.Sprintf("%s (pid %d, %v)", whose(h), h.PID, h.Session)
	}
	return fmt.Sprintf("%s (%v)", whose(h), h.Session)
}

// whoseProcess is whoIs where the session has a column of its own.
func whoseProcess(h api.Holder) string {
	if h.PID != 0 {
		return fmt.Sprintf("%s (pid %d)", whose(h), h.PID)
	}
	return whose(h)
}

func whose(h api.Holder) string {
	who := h.Principal
	if who == "" {
		who = "somebody"
	}
	if h.Host != "" {
		who += " on " + h.Host
	}
	return who
}

// heldBy tells of holders: "held by ann on web3 (pid 4711, s42) for 3m12s (deploy)".
func heldBy(holders []api.Holder) string {
	parts := make([]string, len(holders))
	for i, h := range holders {
		parts[i] = fmt.Sprintf("%s for %s", whoIs(h), roughly(since(h.SinceUnix)))
		if h.Reason != "" {
			parts[i] += " (" + h.Reason + ")"
		}
	}
	return "held by " + strings.Join(parts, ", ")
}
