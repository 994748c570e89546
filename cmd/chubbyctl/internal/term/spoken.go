package term

import (
	"fmt"
	"strings"
	"time"
)

// Seconds is a duration for programs, exact to the millisecond.
func Seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// SecondsOrNull is a number of seconds for programs, or null for 0, which stands for a
// duration that is not known.
func SecondsOrNull(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	s := Seconds(d)
	return &s
}

// Roughly is a duration for people.
func Roughly(d time.Duration) string {
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

// Guess is an estimated duration for people, in one unit: "40s", "4m", "3h".
func Guess(d time.Duration) string {
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

// Counted is a number of things: "1 node", "2 nodes", "3 directories".
func Counted(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	if stem, is := strings.CutSuffix(of, "y"); is {
		of = stem + "ie"
	}
	return fmt.Sprintf("%d %ss", n, of)
}
