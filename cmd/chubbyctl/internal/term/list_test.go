package term

import (
	"bytes"
	"errors"
	"testing"
)

// A long listing is printed as it comes, and takes no more memory than a short one.
func TestLongListingsArePrintedInPieces(t *testing.T) {
	const items = 100_000
	var lines, longest int
	count := writerFunc(func(b []byte) (int, error) {
		lines, longest = lines+bytes.Count(b, []byte("\n")), max(longest, len(b))
		return len(b), nil
	})
	rows := List[int, int]{Add: func(t *Table, i int) { t.Add(i, "p", "h", i%7) }, Columns: []string{"ID", "PRINCIPAL", "HOST", "LOCKS"}}
	list := func(yield func(int, error) bool) {
		for i := range items {
			if !yield(i, nil) {
				return
			}
		}
	}
	if err := rows.Print(count, Text, list); err != nil || lines != items+1 || longest > 100*piece {
		t.Errorf("%d lines, the longest write of %d bytes: %v", lines, longest, err)
	}
	lines, broken := 0, errors.New("broken")
	err := rows.Print(count, Text, func(yield func(int, error) bool) {
		list(func(i int, _ error) bool { return i < 10 && yield(i, nil) })
		yield(0, broken)
	})
	if !errors.Is(err, broken) || lines != 11 {
		t.Errorf("of a listing that breaks off after 10: %d lines, %v", lines, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
