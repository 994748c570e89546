package wire

import "encoding/binary"

// Of an HTTP/2 connection (RFC 9113, 3.4, 4.1 and 6).
const (
	prefaceLen  = 24 // bytes that a client begins with
	frameHeader = 9  // bytes before the payload of a frame

	frameData    = 0x0
	frameHeaders = 0x1
	frameReset   = 0x3 // RST_STREAM

	flagEndStream = 0x1 // of frameData and frameHeaders
)

// frame is the header of a frame.
type frame struct {
	kind, flags byte
	stream      uint32
	length      int // of its payload
}

// frames finds the frames in what passes over a connection in one direction, however
// that is cut. Its zero value is ready at the beginning of a frame.
type frames struct {
	skip int // bytes up to the next frame
	head [frameHeader]byte
	have int // bytes of head that have passed
}

// scan calls see for each frame whose header ends in p.
func (s *frames) scan(p []byte, see func(frame)) {
	for len(p) > 0 {
		if s.skip > 0 {
			n := min(s.skip, len(p))
			s.skip, p = s.skip-n, p[n:]
			continue
		}
		n := copy(s.head[s.have:], p)
		s.have, p = s.have+n, p[n:]
		if s.have < frameHeader {
			return
		}
		s.have = 0
		s.skip = int(binary.BigEndian.Uint32(s.head[0:4]) >> 8)
		see(frame{kind: s.head[3], flags: s.head[4], stream: binary.BigEndian.Uint32(s.head[5:9]) &^ (1 << 31), length: s.skip})
	}
}
