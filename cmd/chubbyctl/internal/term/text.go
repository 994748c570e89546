package term

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// IsInvisible reports whether a terminal would obey a character, or show nothing.
func IsInvisible(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Printable escapes what a terminal would obey or not show: control characters,
// invisible ones, and bytes that are not UTF-8. It is for text that other people have
// chosen.
func Printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, IsInvisible) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			b.WriteString(`\x` + strconv.FormatUint(uint64(text[i]), 16))
		case IsInvisible(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// OrDash returns "-" for an empty text, so that a column is never empty.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// columns is how many columns of a terminal a text takes: two for most of Chinese,
// Japanese and Korean, none for a combining accent. It does not depend on the locale.
func columns(text string) int { return widths().StringWidth(text) }

func widths() *runewidth.Condition { return &runewidth.Condition{StrictEmojiNeutral: true} }

// fold breaks a text into lines of so many columns at most: at spaces, else behind slashes and
// commas, else behind other marks that names are made of, else where the line is full.
func fold(text string, limit int) []string {
	var lines []string
	for columns(text) > limit {
		cut := len(widths().Truncate(text, limit, ""))
		if cut == 0 { // one character is wider than the line
			_, cut = utf8.DecodeRuneInString(text)
		}
		if at := strings.LastIndexByte(text[:min(cut+1, len(text))], ' '); at > 0 {
			cut = at
		} else {
			cut = breakInWord(text[:cut])
		}
		lines = append(lines, strings.TrimRight(text[:cut], " "))
		text = strings.TrimLeft(text[cut:], " ")
	}
	if text == "" && len(lines) > 0 {
		return lines
	}
	return append(lines, text)
}

// breakInWord returns how much of a word that fills a line stays in it: up to a mark behind which people look for the next part
// of a name, unless that leaves most of the line empty.
func breakInWord(full string) int {
	const parts, others = "/,", "@.:;-_=&?+"
	for _, marks := range []string{parts, others} {
		if at := strings.LastIndexAny(full, marks); at >= len(full)/3 {
			return at + 1
		}
	}
	if at := strings.LastIndexAny(full, parts); at > 0 {
		return at + 1
	}
	return len(full)
}

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

// Size is a number of bytes as the value of a flag: 4096, 512KiB, 10MiB, 1GiB.
type Size int64

// units are those of sizes, the largest first. There are only those of 1024: MB may mean
// either.
func units() []struct {
	name  string
	bytes int64
} {
	return []struct {
		name  string
		bytes int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
}

// String writes the size exactly, in the largest unit that does.
func (s *Size) String() string {
	for _, u := range units() {
		if *s != 0 && int64(*s)%u.bytes == 0 {
			return strconv.FormatInt(int64(*s)/u.bytes, 10) + u.name
		}
	}
	return "0"
}

// Type is what help calls the value.
func (s *Size) Type() string { return "SIZE" }

// Set reads what a user writes.
func (s *Size) Set(text string) error {
	digits, unit := text, int64(1)
	for _, u := range units() {
		if number, ok := strings.CutSuffix(text, u.name); ok {
			digits, unit = number, u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || int64(n) > math.MaxInt64/unit {
		return fmt.Errorf("want bytes, or 512KiB, 10MiB, 1GiB")
	}
	*s = Size(int64(n) * unit)
	return nil
}

// RoughSize is a number of bytes for people, rounded down to a tenth of its unit.
func RoughSize(bytes int64) string {
	for _, u := range units() {
		if u.bytes == 1 || bytes < u.bytes {
			continue
		}
		tenths := bytes/u.bytes*10 + bytes%u.bytes*10/u.bytes
		if tenths%10 == 0 {
			return fmt.Sprintf("%d%s", tenths/10, u.name)
		}
		return fmt.Sprintf("%d.%d%s", tenths/10, tenths%10, u.name)
	}
	return fmt.Sprintf("%dB", bytes)
}
