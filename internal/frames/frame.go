package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Kind is what a frame says; see the package comment.
type Kind uint8

// The kinds of frames.
const (
	KindRequest Kind = 1
	KindReply   Kind = 2
	KindLast    Kind = 3
	KindStatus  Kind = 4
	KindCancel  Kind = 5
	KindPing    Kind = 6
	KindPong    Kind = 7
	KindLeave   Kind = 8
	KindTrace   Kind = 9
)

// HeaderSize is the length of the header of a frame, in bytes.
const HeaderSize = 16

// Header is the header of a frame.
type Header struct {
	Length int // of what follows it, in bytes
	Kind   Kind
	Call   uint64
}

// ParseHeader reads a header.
func ParseHeader(b *[HeaderSize]byte) Header {
	return Header{Length: int(binary.BigEndian.Uint32(b[0:4])), Kind: Kind(b[4]), Call: binary.BigEndian.Uint64(b[8:16])}
}

// Append writes the header.
func (h Header) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(h.Length))
	return binary.BigEndian.AppendUint64(append(b, byte(h.Kind), 0, 0, 0), h.Call)
}

// seal writes the length and the number of the frame that b is, once they are known.
func seal(b []byte, call uint64) {
	binary.BigEndian.PutUint32(b[0:4], uint32(len(b)-HeaderSize))
	binary.BigEndian.PutUint64(b[8:16], call)
}

// maxPrefix is the length of the longest beginning of a request, before its message.
const maxPrefix = 1 + 255 + binary.MaxVarintLen64

// appendRequest writes the beginning of a request; left is the time for the call, 0 for no
// limit.
func appendRequest(b []byte, method string, left time.Duration) []byte {
	b = append(append(b, byte(len(method))), method...)
	return binary.AppendUvarint(b, uint64(left))
}

// MethodOf returns the method of a request, of which it gets what follows the header.
func MethodOf(payload []byte) (method string, ok bool) {
	name, _, _, ok := parseRequest(payload)
	return string(name), ok
}

// AppendStatus writes the frame that ends a call, by the rules of gRPC for errors of
// handlers.
func AppendStatus(b []byte, call uint64, err error) []byte {
	start := len(b)
	b = Header{Kind: KindStatus}.Append(b)
	if err != nil {
		s, ok := status.FromError(err)
		if !ok {
			s = status.FromContextError(err)
		}
		data, failed := proto.Marshal(s.Proto())
		if failed != nil { // a text that is not UTF-8, with which gRPC sends no details either
			data, _ = proto.Marshal(status.New(s.Code(), fmt.Sprintf("%q", s.Message())).Proto())
		}
		b = append(b, data...)
	}
	seal(b[start:], call)
	return b
}

// parseRequest reads the beginning of a request, and returns the message that follows it.
// The method is a part of b.
func parseRequest(b []byte) (method []byte, left time.Duration, message []byte, ok bool) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return nil, 0, nil, false
	}
	method, b = b[1:1+int(b[0])], b[1+int(b[0]):]
	ns, n := binary.Uvarint(b)
	if n <= 0 || ns > 1<<62 {
		return nil, 0, nil, false
	}
	return method, time.Duration(ns), b[n:], true
}

// maxTrace is the length of the longest text of a trace, in bytes: a traceparent has 55 (W3C Trace Context).
const maxTrace = 64

// appendTrace writes the frame that says to which trace the next request belongs.
func appendTrace(b []byte, traceparent string) []byte {
	start := len(b)
	b = append(Header{Kind: KindTrace}.Append(b), traceparent...)
	seal(b[start:], 0)
	return b
}

// errTooLong is the error of a frame that was skipped because of its length.
var errTooLong = errors.New("the message is too long")

// errViolation ends a connection whose other end does not follow the rules.
var errViolation = errors.New("the other end does not follow the protocol")

// readHeader reads the next header. buffer is the reader's own.
func readHeader(r io.Reader, buffer *[HeaderSize]byte) (Header, error) {
	if _, err := io.ReadFull(r, buffer[:]); err != nil {
		return Header{}, err
	}
	return ParseHeader(buffer), nil
}

// readPayload reads what follows a header, into a buffer that the caller puts back. If it is
// longer than most, it is skipped, and the error is errTooLong; no sender has messages much
// longer than what the other end takes.
func readPayload(r io.Reader, h Header, most int, pool *buffers) (*buffer, error) {
	if h.Length > most {
		if err := skipPayload(r, h, skippable*most); err != nil {
			return nil, err
		}
		return nil, errTooLong
	}
	b := pool.get(h.Length)
	b.b = b.b[:h.Length]
	if _, err := io.ReadFull(r, b.b); err != nil {
		return nil, err
	}
	return b, nil
}

// skipPayload reads what follows a header, and keeps nothing of it.
func skipPayload(r io.Reader, h Header, most int) error {
	if h.Length > most {
		return errViolation
	}
	if h.Length == 0 { // most often
		return nil
	}
	_, err := io.CopyN(io.Discard, r, int64(h.Length))
	return err
}

// skippable says how many times as long as allowed a frame may be whose connection goes on.
const skippable = 16
