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
