package term

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	columnGap   = 2  // spaces between two columns
	minNarrowed = 12 // columns of the terminal that a narrowed column keeps at least
)

// Table writes aligned columns. With names it is a list, whose first row are the names;
// without, it is the fields of one thing, each after its name. On a terminal a list is
// kept to its width: the widest columns are narrowed, and what does not fit goes on in the
// lines below, so that nothing is lost. In a pipe, and of fields, a row is one line.
//
// A long list is written in pieces, so that it takes no more memory than one of them. A
// column is as wide as the pieces so far need.
type Table struct {
	out      io.Writer
	style    Style
	list     bool
	wide     bool // nothing is left out or narrowed
	rows     [][]Painted
	optional []int // columns that may be left out, in the order in which they are
	leftOut  []int // those that are left out, from the first piece on
	written  []int // how wide the columns were in the piece before; nil in the first
	err      error // of writing a piece
}

// piece is how many rows of a list are written together.
const piece = 1000

// optionalMark ends the name of a column that is left out where the terminal is too
// narrow, before others are narrowed. The last such column goes first.
const optionalMark = "?"

// Painted is a value in a table with its meaning.
type Painted struct {
	meaning Meaning
	value   any
}

// Paint gives a value a meaning.
func Paint(m Meaning, value any) Painted { return Painted{m, value} }

// NewTable returns a table. A list has the names of its columns: "PATH", or "TOKEN?" for
// one that may be left out. With Wide nothing is left out, and a row is one line.
func (f Format) NewTable(w io.Writer, names ...string) *Table {
	return f.newTable(w, StyleOf(w), names...)
}

func (f Format) newTable(w io.Writer, s Style, names ...string) *Table {
	t := &Table{out: w, style: s, list: len(names) > 0}
	if t.wide = f == Wide; t.wide {
		t.style.Width = 0
	}
	if t.list {
		row := make([]Painted, len(names))
		for i, name := range names {
			name, optional := strings.CutSuffix(name, optionalMark)
			if optional {
				t.optional = append([]int{i}, t.optional...)
			}
			row[i] = Paint(Heading, name)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// Add adds a row of values, some of which may be Painted. The names of fields are
// Secondary.
func (t *Table) Add(values ...any) {
	row := make([]Painted, len(values))
	for i, v := range values {
		p, ok := v.(Painted)
		if !ok {
			p.value = v
			if !t.list && i == 0 {
				p.meaning = Secondary
			}
		}
		p.value = Printable(OrDash(fmt.Sprint(p.value)))
		row[i] = p
	}
	t.rows = append(t.rows, row)
	if t.list && len(t.rows) == piece {
		t.err = t.Flush()
	}
}

// Flush writes the table, or what was added since a piece of it was written.
func (t *Table) Flush() error {
	if t.err != nil {
		return t.err
	}
	widths := t.widths()
	var b strings.Builder
	for _, row := range t.rows {
		t.writeRow(&b, row, widths)
	}
	t.rows, t.written = nil, widths
	_, err := io.WriteString(t.out, b.String())
	return err
}

// writeRow writes a row, in as many lines as the longest of its values takes.
func (t *Table) writeRow(b *strings.Builder, row []Painted, widths []int) {
	folded := make([][]string, len(row))
	lines := 1
	for i, c := range row {
		folded[i] = []string{fmt.Sprint(c.value)}
		if t.list && widths[i] > 0 {
			folded[i] = fold(fmt.Sprint(c.value), widths[i])
		}
		lines = max(lines, len(folded[i]))
	}
	for line := range lines {
		blank := 0 // columns of the terminal to leave blank before the next text
		for i, c := range row {
			if widths[i] == 0 {
				continue // the column is left out
			}
			text := ""
			if line < len(folded[i]) {
				text = folded[i][line]
			}
			if text != "" {
				b.WriteString(strings.Repeat(" ", blank))
				b.WriteString(t.style.Paint(c.meaning, text))
				blank = 0
			}
			blank += widths[i] - columns(text) + columnGap
		}
		b.WriteByte('\n')
	}
}

// widths returns how wide each column has to be; 0 leaves it out.
func (t *Table) widths() []int {
	widths := slices.Clone(t.written)
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], columns(fmt.Sprint(c.value)))
		}
	}
	if t.style.Width == 0 || !t.list {
		return widths
	}
	over := (len(widths)-1)*columnGap - t.style.Width
	for _, w := range widths {
		over += w
	}
	if t.written != nil {
		t.optional = t.leftOut // the headings are written: the columns stay as they are
	}
	t.leftOut = nil
	for _, column := range t.optional {
		if over <= 0 && t.written == nil {
			break
		}
		over -= widths[column] + columnGap
		widths[column] = 0
		t.leftOut = append(t.leftOut, column)
	}
	for ; over > 0; over-- {
		if !narrowWidest(widths) {
			break // the terminal breaks the lines
		}
	}
	return widths
}

// narrowWidest takes one off the widest column, if it is wider than minNarrowed.
func narrowWidest(widths []int) bool {
	widest := -1
	for i, w := range widths {
		if w > minNarrowed && (widest < 0 || w > widths[widest]) {
			widest = i
		}
	}
	if widest >= 0 {
		widths[widest]--
	}
	return widest >= 0
}
