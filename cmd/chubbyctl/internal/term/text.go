package term

import (
	"strconv"
	"strings"
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

// shortened fits a text into a number of columns. A path keeps its end, in which
// neighbours differ, all other text its beginning.
func shortened(text string, limit int) string {
	over := columns(text) - limit
	switch {
	case over <= 0:
		return text
	case strings.HasPrefix(text, "/"):
		return "…" + widths().TruncateLeft(text, over+1, "")
	}
	return widths().Truncate(text, limit, "…")
}
