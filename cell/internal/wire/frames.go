package wire

import (
	"encoding/binary"

	"github.com/chubbylock/chubby/internal/frames"
)

// Values of HTTP/2 (RFC 9113, 3.4, 4.1 and 6).
const (
	prefaceLen  = 24 // bytes with which a client begins
	frameHeader = 9  // bytes before the payload of a frame

	frameData    = 0x0
	frameHeaders = 0x1
	frameReset   = 0x3 // RST_STREAM
	frameOther   = 0xff

	flagEndStream = 0x1 // of frameData and frameHeaders
)

// frame is the header of a frame, in the terms of HTTP/2.
type frame struct {
	kind, flags byte
	stream      uint64 // or the number of a call
	length      int    // of the payload
}

// passing finds the frames in one direction of a connection, however the data is cut. Its zero value is ready
// at the beginning of an HTTP/2 frame.
type passing struct {
	ours bool // the frames belong to package frames
	skip int  // bytes up to the next frame
	head [frames.HeaderSize]byte
	have int // bytes of head that have passed
}

// scan calls see for each frame whose header ends in p.
func (s *passing) scan(p []byte, see func(frame)) {
	size := frameHeader
	if s.ours {
		size = frames.HeaderSize
	}
	for len(p) > 0 {
		if s.skip > 0 {
			n := min(s.skip, len(p))
			s.skip, p = s.skip-n, p[n:]
			continue
		}
		n := copy(s.head[s.have:size], p)
		s.have, p = s.have+n, p[n:]
		if s.have < size {
			return
		}
		s.have = 0
		if s.ours {
			s.skip = seeOurs(frames.ParseHeader(&s.head), see)
			continue
		}
		s.skip = int(binary.BigEndian.Uint32(s.head[0:4]) >> 8)
		see(frame{kind: s.head[3], flags: s.head[4], stream: uint64(binary.BigEndian.Uint32(s.head[5:9]) &^ (1 << 31)), length: s.skip})
	}
}

// seeOurs calls see for a frame of package frames, and returns its length.
func seeOurs(h frames.Header, see func(frame)) int {
	f := frame{kind: frameOther, stream: h.Call, length: h.Length}
	switch h.Kind {
	case frames.KindRequest:
		see(frame{kind: frameHeaders, stream: h.Call})
		f.kind = frameData
	case frames.KindReply:
		f.kind = frameData
	case frames.KindLast, frames.KindStatus:
		f.kind, f.flags = frameData, flagEndStream
	case frames.KindCancel:
		f.kind = frameReset
	}
	see(f)
	return h.Length
}
