package master

import "github.com/chubbylock/chubby/api"

// Page is a page of a listing.
type Page[T any] struct {
	List []T
	Next []byte // asks for the next page; empty on the last

	most    int // entries
	bytes   int // max length of the list on the wire
	visited int
}

// newPage returns a page of at most most entries; 0 is api.MaxPage, the max.
func newPage[T any](most int) Page[T] { return Page[T]{most: pageLength(most)} }

// pageLength returns the max number of entries if the caller wants most.
func pageLength(most int) int {
	if most <= 0 {
		return api.MaxPage
	}
	return min(most, api.MaxPage)
}

// full reports whether the page ends before the next entry. That must be visible: else the next mark shows
// that others follow.
func (p *Page[T]) full() bool {
	return len(p.List) >= p.most || p.bytes >= api.MaxPageBytes
}

// visit counts a visited item, and reports whether the page ends here.
func (p *Page[T]) visit() (enough bool) {
	p.visited++
	return p.visited > maxVisited
}

// add adds an entry of that length on the wire.
func (p *Page[T]) add(entry T, bytes int) {
	p.List = append(p.List, entry)
	p.bytes += bytes
}

// maxVisited bounds the nodes that one page looks at: a page may be empty without being the last.
const maxVisited = 4096

// maxPages bounds the pages and Explains made at a time. Each takes most of a megabyte before it counts as a
// reply, and the mutex many times. One client may ask for tens of thousands: gigabytes, and seconds of
// waiting.
const maxPages = 16
