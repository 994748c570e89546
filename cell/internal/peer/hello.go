package peer

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/chubbylock/chubby/api"
)

// A hello opens every connection to a replica's Raft port: the caller sends one, the replica answers with one,
// and then the requested conversation begins. Hellos keep Raft messages away from other cells, and from a
// replica that took over an address. They keep stray connections (a port scan, an HTTP client) away from Raft's
// decoder, which trusts the lengths that it reads. They keep a replica that lost its data from voting; see Passport.
//
// A hello authenticates nobody: an untrusted network needs TLS.
//
// It always has helloSize bytes, so reading one never allocates what a stranger asks for:
//
//	magic   4 bytes "chby"
//	version 1 byte
//	kind    1 byte
//	verdict 1 byte, zero in the caller's
//	6 texts, each 2 bytes of length (big-endian) and so many bytes:
//	        cell, sender's replica ID, wanted replica ID, sender's client address,
//	        cell's id, sender's incarnation
//	2 numbers of 8 bytes (big-endian): last, held
//	1 text: the caller's Raft address; earlier versions write zeros here
//	zeros   up to the checksum
//	check   4 bytes, CRC32C of everything before
type hello struct {
	kind    helloKind
	verdict helloVerdict
	cell    string // the sender's
	from    string // the sender's replica ID
	to      string // the wanted replica ID; in the answer, the caller's own
	client  string // where clients reach the sender

	cellID      string // of the sender's cell; empty while it has none
	incarnation string // of the sender's data directory
	last        uint64 // the last index of the sender's log or snapshot
	held        uint64 // up to here the receiver held every entry, as the sender knows

	raft string // the caller's Raft address; empty in the answer
}

const (
	helloSize    = 2048 // bytes; two segments of any network
	helloMagic   = "chby"
	helloVersion = 1
	MaxText      = 255 // bytes of each text: a host with its port, a component of a path
)

// helloKind is a connection's purpose. Each has a row in streamKinds.
type helloKind byte

const (
	raftStream      helloKind = 1 // carries hashicorp/raft's own protocol
	probeStream     helloKind = 2 // carries questions for the term
	bootstrapStream helloKind = 3 // carries one BootstrapReport
)

type helloVerdict byte

const (
	helloAccepted     helloVerdict = 1
	helloWrongCell    helloVerdict = 2
	helloWrongReplica helloVerdict = 3
	helloSameID       helloVerdict = 4 // the caller has the answering replica's ID
	helloNoCell       helloVerdict = 5 // the answering replica's cell has not begun
	helloOtherCell    helloVerdict = 6 // the caller's cell has the same name and another id
	helloAmnesia      helloVerdict = 7 // the caller's data directory is not the one of that replica ID
	helloBehind       helloVerdict = 8 // the caller holds less than it once held
	helloLeft         helloVerdict = 9 // the caller was removed from the cell
)

// errHello is the cause of every error about bytes that are not a hello.
var errHello = api.Errorf(api.InvalidArgument, "not a hello of a chubby replica of this version")

func (h hello) encode() ([]byte, error) {
	buf := make([]byte, 0, helloSize)
	buf = append(buf, helloMagic...)
	buf = append(buf, helloVersion, byte(h.kind), byte(h.verdict))
	var err error
	for _, text := range []string{h.cell, h.from, h.to, h.client, h.cellID, h.incarnation} {
		if buf, err = appendText(buf, text); err != nil {
			return nil, err
		}
	}
	buf = binary.BigEndian.AppendUint64(buf, h.last)
	buf = binary.BigEndian.AppendUint64(buf, h.held)
	if buf, err = appendText(buf, h.raft); err != nil {
		return nil, err
	}
	check := helloSize - crc32.Size
	buf = buf[:check]
	return binary.BigEndian.AppendUint32(buf, crc32.Checksum(buf, crc32.MakeTable(crc32.Castagnoli))), nil
}

func appendText(buf []byte, text string) ([]byte, error) {
	if len(text) > MaxText {
		return nil, api.Errorf(api.InvalidArgument, "%.40q... is longer than %d bytes: shorten the name or address in the configuration", text, MaxText)
	}
	return append(binary.BigEndian.AppendUint16(buf, uint16(len(text))), text...), nil
}

func textIn(buf []byte) (text string, rest []byte, err error) {
	if len(buf) < 2 {
		return "", nil, fmt.Errorf("%w: it is cut short", errHello)
	}
	n := int(binary.BigEndian.Uint16(buf))
	if n > MaxText || n > len(buf)-2 {
		return "", nil, fmt.Errorf("%w: a text of %d bytes in it", errHello, n)
	}
	return string(buf[2 : 2+n]), buf[2+n:], nil
}

// decodeHello decodes what encode wrote. Its error fits one log line, and quotes at most four bytes of a stranger.
func decodeHello(buf []byte) (hello, error) {
	if len(buf) != helloSize || string(buf[:len(helloMagic)]) != helloMagic {
		return hello{}, fmt.Errorf("%w: it begins with %.4q", errHello, buf)
	}
	if buf[4] != helloVersion {
		return hello{}, fmt.Errorf("%w: it is of version %d, this replica speaks %d", errHello, buf[4], helloVersion)
	}
	check := helloSize - crc32.Size
	if binary.BigEndian.Uint32(buf[check:]) != crc32.Checksum(buf[:check], crc32.MakeTable(crc32.Castagnoli)) {
		return hello{}, fmt.Errorf("%w: its checksum is wrong", errHello)
	}
	h := hello{kind: helloKind(buf[5]), verdict: helloVerdict(buf[6])}
	rest := buf[7:check]
	var err error
	for _, text := range []*string{&h.cell, &h.from, &h.to, &h.client, &h.cellID, &h.incarnation} {
		if *text, rest, err = textIn(rest); err != nil {
			return hello{}, err
		}
	}
	if len(rest) < 16 {
		return hello{}, fmt.Errorf("%w: it is cut short", errHello)
	}
	h.last, h.held = binary.BigEndian.Uint64(rest), binary.BigEndian.Uint64(rest[8:])
	if h.raft, _, err = textIn(rest[16:]); err != nil {
		return hello{}, err
	}
	return h, nil
}

// readHello reads one hello. The caller limits the time.
func readHello(r io.Reader) (hello, error) {
	var buf [helloSize]byte
	const first = len(helloMagic)
	if _, err := io.ReadFull(r, buf[:first]); err != nil {
		return hello{}, fmt.Errorf("read a hello: %w", err)
	}
	if string(buf[:first]) != helloMagic { // do not wait for a stranger
		return hello{}, fmt.Errorf("%w: it begins with %.4q", errHello, buf[:first])
	}
	if _, err := io.ReadFull(r, buf[first:]); err != nil {
		return hello{}, fmt.Errorf("read a hello: %w", err)
	}
	return decodeHello(buf[:])
}

// writeHello writes one hello in one piece. The caller limits the time.
func writeHello(w io.Writer, h hello) error {
	buf, err := h.encode()
	if err != nil {
		return err
	}
	if _, err := w.Write(buf); err != nil {
		return fmt.Errorf("write a hello: %w", err)
	}
	return nil
}
