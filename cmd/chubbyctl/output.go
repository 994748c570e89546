package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/chubbylock/chubby/api"
)

// printJSON writes one object as one line.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// notice tells the user something while things run.
func (g *globals) notice(w io.Writer, text string) {
	if g.json() {
		// Nobody reads it if it cannot be written.
		_ = printJSON(w, map[string]string{"notice": text})
		return
	}
	remark(w, "%s", text)
}

// lineWriter lets several goroutines write whole lines.
type lineWriter struct {
	mu sync.Mutex // serialises the writes to w
	w  io.Writer
}

func (l *lineWriter) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(line)
}

// table writes aligned columns, the first row as their names.
type table struct {
	w *tabwriter.Writer
}

func newTable(w io.Writer, columns ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	if len(columns) > 0 {
		t.row(columns)
	}
	return t
}

func (t *table) row(cells []string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

func (t *table) add(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = strings.ReplaceAll(orDash(fmt.Sprint(c)), "\t", " ")
	}
	t.row(texts)
}

func (t *table) flush() error { return t.w.Flush() }

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
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
	who := h.Principal
	if who == "" {
		who = "somebody"
	}
	if h.Host != "" {
		who += " on " + h.Host
	}
	if h.PID != 0 {
		return fmt.Sprintf("%s (pid %d, %v)", who, h.PID, h.Session)
	}
	return fmt.Sprintf("%s (%v)", who, h.Session)
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
