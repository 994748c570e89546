package console

import (
	"encoding/hex"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/misuse"
	"github.com/chubbylock/chubby/session"
)

// beginTable returns the beginning of a table, until its body. Columns of numbers begin with #.
func beginTable(columns ...string) template.HTML {
	head := `<div class="wide" tabindex="0" role="group" aria-label="Table"><table><thead><tr>`
	for _, column := range columns {
		text, isNumber := strings.CutPrefix(column, "#")
		if head += `<th scope="col"`; isNumber {
			head += ` class="num"`
		}
		head += ">" + template.HTMLEscapeString(text) + "</th>"
	}
	return template.HTML(head + "</tr></thead>") //nolint:gosec // of the templates' own words
}

func waiting(l client.LockInfo) int { return len(l.Waiters) + l.MoreWaiters }

// longestWait returns the longest wait for a lock.
func longestWait(l client.LockInfo) (longest time.Duration) {
	for _, w := range l.Waiters {
		longest = max(longest, w.Waiting)
	}
	return longest
}

// lockState returns a lock's state in one word.
func lockState(l client.LockInfo) string {
	switch {
	case l.Revoked != "":
		return "revoked"
	case len(l.Holders) > 0:
		return l.Mode.String()
	case l.Delayed > 0:
		return "delayed"
	}
	return "free"
}

func howOften(f misuse.Finding) string {
	switch {
	case f.Lease > 0:
		return "a lease of " + roughly(f.Lease)
	case f.Share > 0:
		return fmt.Sprintf("%s, %.0f %% of all", grouped(f.Count), 100*f.Share)
	}
	return grouped(f.Count)
}

func aSecond(f misuse.Finding) string {
	if f.Lease > 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", f.PerSecond())
}

func reversed[T any](list []T) []T {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// pageURL returns the address of a page about one thing.
func pageURL(name string, pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	if len(values) == 0 {
		return "/console/" + name
	}
	return "/console/" + name + "?" + values.Encode()
}

// roughly formats a duration with about two significant digits.
func roughly(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

func grouped(n any) string {
	text := fmt.Sprint(n)
	if _, err := strconv.ParseInt(text, 10, 64); err != nil {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		if i > 0 && (len(text)-i)%3 == 0 && text[i-1] != '-' {
			b.WriteRune('\u202f') // a narrow space without a line break
		}
		b.WriteRune(r)
	}
	return b.String()
}

func byteSize(n int64) string {
	switch {
	case n < 0:
		return "unknown"
	case n < 10<<10:
		return grouped(n) + " B"
	case n < 10<<20:
		return grouped(n>>10) + " KiB"
	case n < 10<<30:
		return grouped(n>>20) + " MiB"
	}
	return grouped(n>>30) + " GiB"
}

// when formats how long ago a moment was, with the moment as a title. Both are by clocks of replicas, for display.
func when(unix, now int64) template.HTML {
	if unix == 0 {
		return `<span class="faint">unknown</span>`
	}
	at := stamp(unix)
	return template.HTML(fmt.Sprintf(`<time datetime=%q title=%q>%s ago</time>`, at, at, roughly(time.Duration(max(now-unix, 0))*time.Second))) //nolint:gosec // of numbers alone
}

func stamp(unix int64) string {
	if unix == 0 {
		return ""
	}
	return time.Unix(unix, 0).UTC().Format(time.RFC3339)
}

// shorten cuts a text to n characters.
func shorten(n int, text string) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}

// Limits of a file's display, in bytes.
const (
	maxTextShown = 64 << 10
	maxHexShown  = 4 << 10
)

type contents struct {
	Text string
	Hex  bool
	More int // bytes not shown
}

// showContents shows text as text, and other contents in hexadecimal.
func showContents(data []byte) contents {
	shown := data[:min(len(data), maxTextShown)]
	for len(shown) < len(data) && len(shown) > 0 && !utf8.RuneStart(data[len(shown)]) {
		shown = shown[:len(shown)-1] // not within a character
	}
	if isText(shown) {
		return contents{Text: string(shown), More: len(data) - len(shown)}
	}
	shown = data[:min(len(data), maxHexShown)]
	return contents{Text: hex.Dump(shown), Hex: true, More: len(data) - len(shown)}
}

func isText(data []byte) bool {
	if !utf8.Valid(data) {
		return false
	}
	for _, r := range string(data) {
		if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
			return false
		}
	}
	return true
}

const (
	maxPoints  = 150                    // of a plot: five minutes, a point every two seconds
	minSpan    = time.Minute            // the minimum width of a plot
	minBetween = 900 * time.Millisecond // between two points, with any number of open pages
)

// series are a visitor's figures of the last minutes, of one master, while a page is open. Its zero value is ready.
type series struct {
	mu     sync.Mutex // guards the fields below
	epoch  api.Epoch
	points []point
}

type point struct {
	at      session.Instant
	counts  map[string]uint64
	waiters int
}

// add records the figures of an overview, if its viewer may see those of the whole cell, and returns the plots.
func (s *series) add(now session.Instant, o api.Overview) []plot {
	if !o.Whole {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != o.Epoch { // each master counts anew
		s.epoch, s.points = o.Epoch, nil
	}
	if n := len(s.points); n == 0 || now.Sub(s.points[n-1].at) >= minBetween {
		if n == maxPoints {
			s.points = slices.Delete(s.points, 0, 1)
		}
		s.points = append(s.points, point{at: now, counts: o.Counts, waiters: o.Backlog.Waiters})
	}
	var list []plot
	for _, rate := range []struct{ name, count string }{{"Calls", "calls"}, {"Changes", "commands"}, {"Locks granted after a wait", "grants"}, {"Leases extended", "leases"}} {
		list = append(list, draw(rate.name, "/s", s.points, func(before, now point) float64 {
			seconds := now.at.Sub(before.at).Seconds()
			return float64(now.counts[rate.count]-min(now.counts[rate.count], before.counts[rate.count])) / seconds
		}))
	}
	return append(list, draw("Requests waiting for locks", "", s.points, func(_, now point) float64 { return float64(now.waiters) }))
}

// plot is one figure over time, as SVG.
type plot struct {
	Name string
	Unit string
	Last string
	Most string
	Line string        // points of a polyline
	Area string        // points of the polygon below it
	Span time.Duration // of the whole width
}

// Size of a plot, in its own units.
const (
	plotWidth  = 300
	plotHeight = 64
	plotMargin = 4 // above and below
)

// draw draws one figure, from value, which is that between two points.
func draw(name, unit string, points []point, value func(before, now point) float64) plot {
	p := plot{Name: name, Unit: unit, Last: "–", Span: minSpan}
	end := points[len(points)-1].at
	for p.Span < end.Sub(points[0].at) {
		p.Span += minSpan
	}
	values, most := make([]float64, len(points)-1), 0.0
	for i := range values {
		values[i] = value(points[i], points[i+1])
		most = max(most, values[i])
		p.Last = figure(values[i], unit)
	}
	p.Most = figure(most, unit)
	left := func(at session.Instant) float64 { return plotWidth * (1 - float64(end.Sub(at))/float64(p.Span)) }
	var line []string
	for i, v := range values {
		line = append(line, fmt.Sprintf("%.1f,%.1f", left(points[i+1].at), plotHeight-plotMargin-(plotHeight-2*plotMargin)*v/max(most, 1)))
	}
	if len(line) > 1 {
		p.Line = strings.Join(line, " ")
		p.Area = fmt.Sprintf("%.1f,%d %s %d,%d", left(points[1].at), plotHeight-plotMargin, p.Line, plotWidth, plotHeight-plotMargin)
	}
	return p
}

// figure formats a number: small rates with a decimal.
func figure(v float64, unit string) string {
	if v > 0 && v < 10 && unit != "" {
		return fmt.Sprintf("%.1f", v)
	}
	return grouped(int64(math.Round(v)))
}
