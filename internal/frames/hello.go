package frames

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

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

// greet exchanges hellos until ctx ends. Then, and after an error, the connection is closed.
func greet(ctx context.Context, conn net.Conn, r io.Reader, ours hello) (theirs hello, err error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	if _, err = conn.Write(ours.append(nil)); err == nil {
		theirs, err = readHello(r)
	}
	if !stop() && ctx.Err() != nil {
		return hello{}, fmt.Errorf("the other end does not say hello: %w", context.Cause(ctx))
	}
	if err != nil {
		_ = conn.Close()
		if !errors.Is(err, ErrOtherProtocol) { // it ended silently
			err = fmt.Errorf("%w: %w", ErrOtherProtocol, err)
		}
	}
	return theirs, err
}
