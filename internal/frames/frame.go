package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Kind is a kind of frame; see the package comment.
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

// HeaderSize is the length of a frame's header, in bytes.
const HeaderSize = 16

// Header is the header of a frame.
type Header struct {
	Length int // of the rest, in bytes
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

func seal(b []byte, call uint64) {
	binary.BigEndian.PutUint32(b[0:4], uint32(len(b)-HeaderSize))
	binary.BigEndian.PutUint64(b[8:16], call)
}

// maxPrefix is the maximum length of a request before its message.
const maxPrefix = 1 + 255 + binary.MaxVarintLen64

// appendRequest writes a request's beginning; left is the time for the call, 0 for no limit.
func appendRequest(b []byte, method string, left time.Duration) []byte {
	b = append(append(b, byte(len(method))), method...)
	return binary.AppendUvarint(b, uint64(left))
}

// MethodOf returns a request's method; payload is the frame without the header.
func MethodOf(payload []byte) (method string, ok bool) {
	name, _, _, ok := parseRequest(payload)
	return string(name), ok
}

// AppendStatus writes the frame that ends a call, by gRPC's rules for errors of handlers.
func AppendStatus(b []byte, call uint64, err error) []byte {
	start := len(b)
	b = Header{Kind: KindStatus}.Append(b)
	if err != nil {
		s, ok := status.FromError(err)
		if !ok {
			s = status.FromContextError(err)
		}
		data, failed := proto.Marshal(s.Proto())
		if failed != nil { // text that is not UTF-8, with which gRPC sends no details either
			data, _ = proto.Marshal(status.New(s.Code(), fmt.Sprintf("%q", s.Message())).Proto())
		}
		b = append(b, data...)
	}
	seal(b[start:], call)
	return b
}

// parseRequest reads a request's beginning, and returns the message after it. The method is a part of b.
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

// maxTrace is the maximum length of a trace's text, in bytes: a traceparent has 55 (W3C Trace Context).
const maxTrace = 64

func appendTrace(b []byte, traceparent string) []byte {
	start := len(b)
	b = append(Header{Kind: KindTrace}.Append(b), traceparent...)
	seal(b[start:], 0)
	return b
}

var errTooLong = errors.New("the message is too long")

var errViolation = errors.New("the other end does not follow the protocol")

func readHeader(r io.Reader, buffer *[HeaderSize]byte) (Header, error) {
	if _, err := io.ReadFull(r, buffer[:]); err != nil {
		return Header{}, err
	}
	return ParseHeader(buffer), nil
}

// readPayload reads a frame after its header, into a buffer that the caller returns. It skips one longer than
// most, and returns errTooLong.
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

// skipPayload skips a frame after its header.
func skipPayload(r io.Reader, h Header, most int) error {
	if h.Length > most {
		return errViolation
	}
	if h.Length == 0 { // the usual case
		return nil
	}
	_, err := io.CopyN(io.Discard, r, int64(h.Length))
	return err
}

// skippable is how many times the maximum a skipped frame may be; a longer one ends the connection.
const skippable = 16

// magic begins both sides of a connection, unlike HTTP/2's ("PRI "). A change of the frames' meaning changes
// the version.
const magic = "chubby frames/1\n"

// FirstByte is the first byte of every connection of frames, and of no HTTP/2 connection.
const FirstByte byte = 'c'

// HelloSize is a hello's length: that of HTTP/2's preface (RFC 9113, 3.4), for which a server without frames
// waits.
const HelloSize = len(magic) + 8

// hello describes a side.
type hello struct {
	calls  uint32 // that it serves at a time
	length uint32 // maximum of a message, in bytes
}

func (h hello) append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(append(b, magic...), h.calls), h.length)
}

// ErrOtherProtocol says that the other end does not speak frames, or closed the connection silently. No call
// was sent.
var ErrOtherProtocol = errors.New("the other end does not speak the protocol of frames")

// ErrHTTP adds that the other end speaks HTTP/1, like a web server.
var ErrHTTP = errors.New("the other end speaks HTTP/1")

func readHello(r io.Reader) (hello, error) {
	var b [HelloSize]byte
	n, err := io.ReadFull(r, b[:])
	if strings.HasPrefix(string(b[:n]), "HTTP/1") {
		return hello{}, fmt.Errorf("%w: %w", ErrOtherProtocol, ErrHTTP)
	}
	if n = min(n, len(magic)); string(b[:n]) != magic[:n] {
		return hello{}, ErrOtherProtocol
	}
	if err != nil {
		return hello{}, fmt.Errorf("read the hello: %w", err)
	}
	return hello{calls: binary.BigEndian.Uint32(b[len(magic):]), length: binary.BigEndian.Uint32(b[len(magic)+4:])}, nil
}

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
