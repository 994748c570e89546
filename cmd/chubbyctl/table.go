package main

import (
	"fmt"
	"io"
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
type table struct {
	out   io.Writer
	style style
	list  bool
	rows  [][]painted
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
}

// flush writes the table.
func (t *table) flush() error {
	wide := t.wide()
	var b strings.Builder
	for _, row := range t.rows {
		for i, c := range row {
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
	_, err := io.WriteString(t.out, b.String())
	return err
}

// wide returns how wide each column is to be.
func (t *table) wide() []int {
	var wide []int
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
	over := (len(wide) - 1) * columnGap
	for _, w := range wide {
		over += w
	}
	for over -= t.style.width; over > 0; over-- {
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

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
