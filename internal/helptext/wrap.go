package helptext

import (
	"strings"
	"unicode/utf8"
)

// row is a line of a table in help: a word with its indentation, and what is said of it.
type row struct{ word, text string }

// gap is how many spaces there are at least between a word and its text.
const gap = 2

// table writes rows with their texts under each other. A word that is wider than most of its half of the line has its text
// below itself.
func table(rows []row, width int) string {
	most := width * 9 / 20
	column := 0
	for _, r := range rows {
		if n := utf8.RuneCountInString(r.word) + gap; n <= most {
			column = max(column, n)
		}
	}
	if column == 0 {
		column = most / 2
	}
	var b strings.Builder
	for _, r := range rows {
		first := r.word
		if r.text == "" { // a title
			b.WriteString(first + "\n")
			continue
		}
		if n := utf8.RuneCountInString(first) + gap; n <= column {
			first += strings.Repeat(" ", column-n+gap)
		} else {
			b.WriteString(first + "\n")
			first = strings.Repeat(" ", column)
		}
		b.WriteString(wrap(first, r.text, column, width))
	}
	return b.String()
}

// prose writes paragraphs. Lines are one text until an empty one, or one that begins with a space or a tab. That is a line of its own:
// a word, at least two spaces, and what it means, which goes on in lines that begin under it; or anything, which is broken if
// it does not fit.
func prose(text string, width int) string {
	var b strings.Builder
	var first string // of what is open: a line up to what it means, "" in a paragraph
	var open []string
	flush := func() {
		if len(open) > 0 {
			b.WriteString(wrap(first, strings.Join(open, " "), utf8.RuneCountInString(first), width))
		}
		first, open = "", nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		body := strings.TrimLeft(line, " \t")
		indent := len(line) - len(body)
		switch {
		case body == "":
			flush()
			b.WriteString("\n")
		case indent == 0 && first == "", indent > 0 && indent == utf8.RuneCountInString(first):
			open = append(open, body)
		case indent == 0:
			flush()
			open = append(open, body)
		default:
			flush()
			_, meaning, found := strings.Cut(body, "  ")
			if found {
				body = strings.TrimLeft(meaning, " ")
			}
			if first, open = strings.TrimSuffix(line, body), []string{body}; !found {
				flush()
			}
		}
	}
	flush()
	return b.String()
}

// wrap breaks a text between words so that no line is wider than width, unless one word is. The first line begins with first, and
// the others with so many spaces.
func wrap(first, text string, indent, width int) string {
	var b strings.Builder
	b.WriteString(first)
	at, begun := utf8.RuneCountInString(first), false
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case !begun:
		case at+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at, begun = at+n, true
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}
