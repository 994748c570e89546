package frames

import "sync"

type buffer struct{ b []byte }

// buffers are the buffers of a server or a link. The zero value is ready, and safe for concurrent use.
type buffers struct{ pool sync.Pool }

// maxPooled is the largest capacity of pooled buffers. Longer messages get a buffer of their size.
const maxPooled = 16 << 10

func (p *buffers) get(n int) *buffer {
	if n <= maxPooled {
		if b, ok := p.pool.Get().(*buffer); ok && cap(b.b) >= n {
			return b
		}
	}
	return &buffer{b: make([]byte, 0, max(n, 256))}
}

// put returns a buffer that is no longer in use.
func (p *buffers) put(b *buffer) {
	if cap(b.b) <= maxPooled {
		b.b = b.b[:0]
		p.pool.Put(b)
	}
}
