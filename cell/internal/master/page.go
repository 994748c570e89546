package master

import "github.com/chubbylock/chubby/api"

// Page is a page of a listing.
type Page[T any] struct {
	List []T
	Next []byte // what asks for the page after this; empty on the last

	most    int // entries
	bytes   int // of the list on the wire, at most
	visited int
}

// newPage returns a page of so many entries at most; 0 is api.MaxPage, and the most.
func newPage[T any](most int) Page[T] { return Page[T]{most: pageLength(most)} }

// pageLength is how many entries a page may have of which somebody wants so many.
func pageLength(most int) int {
	if most <= 0 {
		return api.MaxPage
	}
	return min(most, api.MaxPage)
}

// full reports whether the page ends before the next entry. It is asked only about entries that the viewer may see: that others
// follow withholds what its caller may not read.
func (p *Page[T]) full() bool {
	return len(p.List) >= p.most || p.bytes >= api.MaxPageBytes
}

// visit counts one more that is looked at, and reports whether the page ends before it because that is enough.
func (p *Page[T]) visit() (enough bool) {
	p.visited++
	return p.visited > maxVisited
}

// add adds an entry of that length.
func (p *Page[T]) add(entry T, bytes int) {
	p.List = append(p.List, entry)
	p.bytes += bytes
}

// maxVisited bounds the nodes that one page of a listing looks at: a page may be
// empty, and still not be the last.
const maxVisited = 4096

// maxPages bounds the pages, and Explains, that are made at a time. Each takes most of a
// megabyte before it can be counted as a reply, and the mutex again and again: tens of
// thousands at a time, as one client may ask for, would take gigabytes, and make everybody
// else wait for the mutex for seconds.
const maxPages = 16
