package frames

import "sync"

// buffer is a piece of memory that is used again.
type buffer struct{ b []byte }

// buffers are the buffers of a server, or of a link. It is safe for concurrent use. Its zero
// value is ready.
type buffers struct{ pool sync.Pool }

// maxPooled is the capacity of the largest buffers that are kept. Longer messages get a
// buffer of their size.
const maxPooled = 16 << 10

// get returns an empty buffer with room for n bytes.
func (p *buffers) get(n int) *buffer {
	if n <= maxPooled {
		if b, ok := p.pool.Get().(*buffer); ok && cap(b.b) >= n {
			return b
		}
	}
	return &buffer{b: make([]byte, 0, max(n, 256))}
}

// put gives a buffer back, which nobody uses any more.
func (p *buffers) put(b *buffer) {
	if cap(b.b) <= maxPooled {
		b.b = b.b[:0]
		p.pool.Put(b)
	}
}
