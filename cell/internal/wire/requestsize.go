package wire

import (
	"encoding/binary"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/frames"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// requestSize is the size of a request before it is decoded. A part is a field or a list element: two bytes may
// become partWeight.
type requestSize struct{ bytes, parts int }

const (
	// maxParts limits the parts of a request. Our largest has some 700: a transaction of 2 * api.MaxTxnSteps
	// steps and api.MaxOutstanding outstanding requests.
	maxParts   = 1_024
	partWeight = 160
	// someParts is how many parts callWeight includes.
	someParts = callWeight / partWeight
)

// weight is what counts of a request besides its bytes.
func (r requestSize) weight() int64 { return int64(max(0, r.parts-someParts)) * partWeight }

// sizeOf measures a request, up to maxParts, without decoding it or allocating memory.
func sizeOf(wire []byte, message protoreflect.MessageDescriptor) (requestSize, error) {
	parts, err := countParts(wire, message, 0)
	return requestSize{bytes: len(wire), parts: parts}, err
}

// countParts adds the parts of a message to parts. No message contains itself, so the recursion ends.
func countParts(wire []byte, message protoreflect.MessageDescriptor, parts int) (_ int, err error) {
	fields := message.Fields()
	for len(wire) > 0 && err == nil {
		number, kind, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return parts, malformed(n)
		}
		if kind == protowire.StartGroupType || kind == protowire.EndGroupType { // groups nest without a limit, and no request has one
			return parts, api.Errorf(api.InvalidArgument, "the request cannot be read: it has a group")
		}
		wire = wire[n:]
		if n = protowire.ConsumeFieldValue(number, kind, wire); n < 0 {
			return parts, malformed(n)
		}
		parts++
		if field := fields.ByNumber(number); field != nil && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(wire)
			if inner := field.Message(); inner != nil {
				parts, err = countParts(value, inner, parts)
			} else if field.IsList() {
				parts += packed(value, field.Kind())
			}
		}
		if wire = wire[n:]; parts > maxParts && err == nil {
			err = api.Errorf(api.TooLarge, "the request has more than %d fields and elements of lists", maxParts)
		}
	}
	return parts, err
}

func malformed(n int) error {
	return api.Errorf(api.InvalidArgument, "the request cannot be read: %v", protowire.ParseError(n))
}

// packed returns how many numbers a packed list has; 0 for texts.
func packed(value []byte, kind protoreflect.Kind) (n int) {
	switch kind {
	case protoreflect.StringKind, protoreflect.BytesKind:
		return 0
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return len(value) / 4
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return len(value) / 8
	}
	for _, b := range value { // the last byte of each number has no continuation bit
		n += int(b>>7 ^ 1)
	}
	return n
}

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
