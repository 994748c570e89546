package term

import (
	"bytes"
	"fmt"
	"io"
	"iter"
)

// Page is what a verb prints for people. It is kept until it is complete, so that nothing before its last line can fail.
type Page struct {
	Style
	format Format
	text   bytes.Buffer
}

// Show prints one object for programs, or the page for people that draw fills.
func (f Format) Show(w io.Writer, fields any, draw func(*Page)) error {
	if f.ForPrograms() {
		return f.Print(w, fields)
	}
	return f.Draw(w, draw)
}

// Say prints one object for programs, or one line for people.
func (f Format) Say(w io.Writer, fields any, line string, args ...any) error {
	return f.Show(w, fields, func(p *Page) { p.Line(line, args...) })
}

// SayIn is Say of a line in the colour of its meaning, which may have text of others in it.
func (f Format) SayIn(w io.Writer, fields any, m Meaning, line string) error {
	return f.Show(w, fields, func(p *Page) { p.Line("%s", p.Paint(m, Printable(line))) })
}

// Draw prints the page for people that draw fills.
func (f Format) Draw(w io.Writer, draw func(*Page)) error {
	p := f.NewPage(StyleOf(w))
	draw(p)
	_, err := io.WriteString(w, p.String())
	return err
}

// NewPage returns an empty page that looks as a style says.
func (f Format) NewPage(s Style) *Page { return &Page{Style: s, format: f} }

// String returns what the page has so far.
func (p *Page) String() string { return p.text.String() }

// Line adds a line, as fmt.Printf would print it.
func (p *Page) Line(line string, args ...any) { fmt.Fprintf(&p.text, line+"\n", args...) }

// Paragraph adds a sentence, broken between words as Wrap does, in the colour of its meaning.
func (p *Page) Paragraph(m Meaning, sentence, first string) {
	p.text.WriteString(p.Paint(m, p.Wrap(sentence, first)) + "\n")
}

// Sentence is Paragraph of a plain sentence, as fmt.Sprintf writes it, which may have text of others in it.
func (p *Page) Sentence(format string, args ...any) {
	p.Paragraph(Plain, Printable(fmt.Sprintf(format, args...)), "")
}

// Table adds the table that fill fills. Its arguments are those of NewTable.
func (p *Page) Table(fill func(*Table), names ...string) {
	t := p.format.newTable(&p.text, p.Style, names...)
	fill(t)
	_ = t.Flush() // a buffer takes everything
}

// Fields adds the fields of one thing, each a name and a value.
func (p *Page) Fields(pairs ...any) {
	p.Table(func(t *Table) {
		for i := 0; i < len(pairs); i += 2 {
			t.Add(pairs[i], pairs[i+1])
		}
	})
}

// Rest says how much more of something there is than the page shows, if there is more.
func (p *Page) Rest(more int, of string) {
	if more > 0 {
		p.Line("and %d more %s", more, of)
	}
}

// List is how a listing is printed.
type List[T any] struct {
	Fields  func(T) Fields  // one of it as programs are shown it; nil: it has the fields itself
	Add     func(*Table, T) // adds its rows to a table
	Columns []string        // of that table
	None    string          // what to say if the listing is empty; without it, the names of the columns stand alone
}

// PrintAll prints a listing that is there as a whole.
func (l List[T]) PrintAll(w io.Writer, format Format, list []T) error {
	return l.Print(w, format, func(yield func(T, error) bool) {
		for _, item := range list {
			if !yield(item, nil) {
				return
			}
		}
	})
}

// Print prints what a listing yields, as it comes. If the listing breaks off, what came
// before is printed, and the error returned.
func (l List[T]) Print(w io.Writer, format Format, list iter.Seq2[T, error]) error {
	if format.ForPrograms() {
		for item, err := range list {
			switch {
			case err != nil:
			case l.Fields == nil:
				err = format.Print(w, item)
			default:
				err = format.Print(w, l.Fields(item))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	t, empty := format.NewTable(w, l.Columns...), true
	for item, err := range list {
		if err != nil {
			if !empty {
				_ = t.Flush() // the error to return is the listing's
			}
			return err
		}
		empty = false
		if l.Add(t, item); t.err != nil {
			return t.err
		}
	}
	if empty && l.None != "" {
		_, err := fmt.Fprintln(w, l.None)
		return err
	}
	return t.Flush()
}
