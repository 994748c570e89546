package term

import (
	"fmt"
	"io"
	"iter"
)

// List is how a listing is printed.
type List[T, F any] struct {
	Fields  func(T) F       // one of it as programs are shown it
	Add     func(*Table, T) // adds its rows to a table
	Columns []string        // of that table
	None    string          // what to say if the listing is empty; without it, the names of the columns stand alone
}

// Itself is the Fields of what has the fields for programs itself.
func Itself[T any](item T) T { return item }

// PrintAll prints a listing that is there as a whole.
func (l List[T, F]) PrintAll(w io.Writer, format Format, list []T) error {
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
func (l List[T, F]) Print(w io.Writer, format Format, list iter.Seq2[T, error]) error {
	if format.ForPrograms() {
		for item, err := range list {
			if err == nil {
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
