package main

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
)

const (
	columnGap = 2  // spaces between two columns
	leastWide = 10 // columns of the terminal to which a column of a table is shortened at most
)

// table writes aligned columns. With names it is a list, the first row of which
// are the names; without, it is one thing's fields, each behind its name. On a
// terminal a list is kept to its width: the widest column is shortened first, and
// the first one, which says what the row is about, last. In a pipe, and of fields,
// nothing is.
//
// A long list is written in pieces of piece rows, so that it takes no more memory
// than that; a column is as wide as the pieces up to then want it.
type table struct {
	spare []int // columns that may be left out, the first of them first
	left  []int // those that are, from the first piece on
	out   io.Writer
	style style
	list  bool
	rows  [][]painted
	least []int // how wide the columns were in the piece before
	err   error // of writing a piece
}

// piece is the rows of a list that are written together.
const piece = 1000

// spareMark ends the name of a column that is left out where the terminal is too
// narrow, before anything is shortened. The last such column goes first.
const spareMark = "?"

// newTable is a table of a command: with -o wide, nothing is left out of it.
func (g *globals) newTable(w io.Writer, names ...string) *table {
	t := newTable(w, names...)
	if g.output == outputWide {
		t.style.width = 0
	}
	return t
}

// painted is a value with what it means.
type painted struct {
	paint paint
	value any
}

func newTable(w io.Writer, names ...string) *table {
	t := &table{out: w, style: styleOf(w), list: len(names) > 0}
	if t.list {
		row := make([]painted, len(names))
		for i, name := range names {
			name, spare := strings.CutSuffix(name, spareMark)
			if spare {
				t.spare = append([]int{i}, t.spare...)
			}
			row[i] = painted{heading, name}
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// add adds a row. What is not painted is plain, but for the names of fields.
func (t *table) add(cells ...any) {
	row := make([]painted, len(cells))
	for i, c := range cells {
		p, ok := c.(painted)
		if !ok {
			p.value = c
			if !t.list && i == 0 {
				p.paint = secondary
			}
		}
		p.value = printable(orDash(fmt.Sprint(p.value)))
		row[i] = p
	}
	t.rows = append(t.rows, row)
	if t.list && len(t.rows) == piece {
		t.err = t.flush()
	}
}

// flush writes the table, or what was added since a piece of it was written.
func (t *table) flush() error {
	if t.err != nil {
		return t.err
	}
	wide := t.wide()
	var b strings.Builder
	for _, row := range t.rows {
		for i, c := range row {
			if wide[i] == 0 {
				continue // there is no room for this column
			}
			text, last := fmt.Sprint(c.value), i == len(row)-1
			if t.list {
				text = shortened(text, wide[i])
			}
			b.WriteString(t.style.on(c.paint, text))
			if !last {
				b.WriteString(strings.Repeat(" ", wide[i]-columns(text)+columnGap))
			}
		}
		b.WriteByte('\n')
	}
	t.rows, t.least = nil, wide
	_, err := io.WriteString(t.out, b.String())
	return err
}

// wide returns how wide each column is to be.
func (t *table) wide() []int {
	wide := slices.Clone(t.least)
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(wide) {
				wide = append(wide, 0)
			}
			wide[i] = max(wide[i], columns(fmt.Sprint(c.value)))
		}
	}
	if t.style.width == 0 || !t.list {
		return wide
	}
	over := (len(wide)-1)*columnGap - t.style.width
	for _, w := range wide {
		over += w
	}
	if t.least != nil {
		t.spare = t.left // the headings are written
	}
	t.left = nil
	for _, column := range t.spare {
		if over <= 0 && t.least == nil {
			break
		}
		over -= wide[column] + columnGap
		wide[column] = 0
		t.left = append(t.left, column)
	}
	for ; over > 0; over-- {
		if !shorten(wide[1:]) && !shorten(wide[:1]) {
			break // the terminal breaks the lines
		}
	}
	return wide
}

// shorten takes one off the widest column, if that leaves enough of it.
func shorten(wide []int) bool {
	widest := -1
	for i, w := range wide {
		if w > leastWide && (widest < 0 || w > wide[widest]) {
			widest = i
		}
	}
	if widest >= 0 {
		wide[widest]--
	}
	return widest >= 0
}

// printEach prints what a listing yields, as it comes: each as a line of JSON, or as
// rows of a table that add adds. none says that there was nothing.
func printEach[T, F any](g *globals, out io.Writer, list iter.Seq2[T, error], fields func(T) F, add func(*table, T), none string, columns ...string) error {
	t, some := g.newTable(out, columns...), false
	for one, err := range list {
		if err == nil && g.json() {
			err = printJSON(out, fields(one))
		}
		if err != nil {
			if some && !g.json() {
				_ = t.flush() // what came is worth showing; why it breaks off is the error
			}
			return err
		}
		if some = true; g.json() {
			continue
		}
		if add(t, one); t.err != nil {
			return t.err
		}
	}
	switch {
	case g.json():
		return nil
	case !some:
		_, err := fmt.Fprintln(out, none)
		return err
	}
	return t.flush()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
