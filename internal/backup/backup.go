package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

const (
	magicText = "chubby backup "
	magic     = magicText + "1\n"
	chunkSize = 64 << 10
	maxRecord = 1 << 20 // the longest record and chunk that are read
)

// About describes a backup.
type About struct {
	Cell      string     `json:"cell"`
	CellID    api.CellID `json:"cell_id"`
	Index     uint64     `json:"index"` // of the last entry of the log that is in it
	Epoch     api.Epoch  `json:"epoch"`
	Level     int        `json:"level"` // the feature level
	Nodes     int        `json:"nodes"`
	Contents  int64      `json:"contents_bytes"` // of all files together
	Sessions  int        `json:"sessions"`
	Locks     int        `json:"locks"` // that are held
	TakenUnix int64      `json:"taken_unix"`
	Counter   uint64     `json:"counter"`                  // the fencing counter: nothing that was issued before is above it
	Recovered string     `json:"recovered_from,omitempty"` // the ID of the replica out of whose directory it was made, when the cell had lost its majority; empty if a master gave it
}

// Write writes a backup of a state, taken at a time, in seconds since 1970, out of the directory of a replica or,
// if recovered is empty, by a master.
func Write(w io.Writer, state raftfsm.State, taken int64, recovered string) error {
	state = state.ForBackup()
	about, err := json.Marshal(aboutOf(state, taken, recovered))
	if err != nil {
		return err
	}
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), chunkSize)
	chunks := bufio.NewWriterSize(chunkWriter{out}, chunkSize)
	if _, err := out.WriteString(magic); err != nil {
		return err
	}
	if err := writeRecord(out, about); err != nil {
		return err
	}
	if _, err := state.WriteTo(chunks); err != nil {
		return err
	}
	if err := errors.Join(chunks.Flush(), writeRecord(out, nil), out.Flush()); err != nil {
		return err
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

func aboutOf(state raftfsm.State, taken int64, recovered string) About {
	counts := state.Tree.Counts()
	return About{
		Cell: state.Cell, CellID: state.CellID, Index: state.Applied, Epoch: state.Epoch, Level: state.Level,
		Nodes: counts.Nodes, Contents: counts.Bytes, Sessions: state.Sessions.Len(), Locks: counts.Locks,
		TakenUnix: taken, Counter: state.Counter, Recovered: recovered,
	}
}

func writeRecord(w io.Writer, data []byte) error {
	_, err := w.Write(append(binary.AppendUvarint(nil, uint64(len(data))), data...))
	return err
}

// chunkWriter writes what it is given as chunks.
type chunkWriter struct{ w io.Writer }

// Write implements io.Writer.
func (c chunkWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		one := rest[:min(len(rest), chunkSize)]
		if err := writeRecord(c.w, one); err != nil {
			return 0, err
		}
		rest = rest[len(one):]
	}
	return len(p), nil
}

// Backup is a backup that was read, and is whole.
type Backup struct {
	About
	Bytes    int64         // of the backup
	Checksum string        // SHA-256 of everything in it, in hexadecimal
	State    raftfsm.State // without its secret
}

// Read reads a backup, and checks its sum and every invariant of what is in it. Anything else is Corrupt, and nothing may follow it. The
// reader holds what it reads in memory.
func Read(r io.Reader) (*Backup, error) {
	b, err := read(&reader{from: bufio.NewReaderSize(r, chunkSize), sum: sha256.New()})
	if err != nil {
		return nil, &api.Error{Code: api.Corrupt, Op: "read the backup", Message: "this is no whole backup", Err: err}
	}
	return b, nil
}

func read(in *reader) (*Backup, error) {
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(in, begin); err != nil {
		return nil, whole(err)
	}
	if text := string(begin); text != magic {
		if strings.HasPrefix(text, magicText) {
			return nil, fmt.Errorf("its format is %q, and this version knows %q: use a newer one", text, magic)
		}
		if strings.HasPrefix(text, "\x1f\x8b") {
			return nil, errors.New("it is compressed; give what gunzip makes of it")
		}
		return nil, fmt.Errorf("it begins with %q, and not with %q", begin, magic)
	}
	about, err := in.record()
	if err != nil {
		return nil, fmt.Errorf("its description: %w", err)
	}
	b := &Backup{}
	if err := json.Unmarshal(about, &b.About); err != nil {
		return nil, fmt.Errorf("its description: %w", err)
	}
	if b.State, err = raftfsm.ReadState(&chunkReader{in: in}, raftfsm.MaxLevel); err != nil {
		return nil, err
	}
	want := in.sum.Sum(nil)
	sum := make([]byte, len(want))
	if _, err := io.ReadFull(in, sum); err != nil {
		return nil, fmt.Errorf("its checksum: %w", whole(err))
	}
	if !bytes.Equal(sum, want) {
		return nil, fmt.Errorf("its checksum is %x, and %x was computed", sum, want)
	}
	if _, err := in.from.ReadByte(); err != io.EOF {
		return nil, errors.New("something follows its checksum")
	}
	switch {
	case b.About != aboutOf(b.State, b.TakenUnix, b.Recovered):
		return nil, errors.New("its description is of another state")
	case len(b.State.Secret) > 0:
		return nil, errors.New("it has the secret of its cell, which no backup has")
	}
	b.Bytes, b.Checksum = in.n, hex.EncodeToString(want)
	return b, nil
}

// whole is what is said of a backup that ends too early.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// reader keeps the sum of what was read.
type reader struct {
	from *bufio.Reader
	sum  hash.Hash
	n    int64
}

// Read implements io.Reader.
func (in *reader) Read(p []byte) (int, error) {
	n, err := in.from.Read(p)
	in.sum.Write(p[:n])
	in.n += int64(n)
	return n, err
}

// ReadByte implements io.ByteReader.
func (in *reader) ReadByte() (byte, error) {
	var one [1]byte
	_, err := io.ReadFull(in, one[:])
	return one[0], err
}

// record reads a record, or a chunk.
func (in *reader) record() ([]byte, error) {
	size, err := binary.ReadUvarint(in)
	if err != nil {
		return nil, whole(err)
	}
	if size > maxRecord {
		return nil, fmt.Errorf("a part of %d bytes; at most %d are written", size, maxRecord)
	}
	data := make([]byte, size)
	_, err = io.ReadFull(in, data)
	return data, whole(err)
}

// chunkReader reads what is in chunks, to their end.
type chunkReader struct {
	in   *reader
	rest []byte
	end  bool
}

// Read implements io.Reader.
func (c *chunkReader) Read(p []byte) (int, error) {
	if len(c.rest) == 0 && !c.end {
		var err error
		if c.rest, err = c.in.record(); err != nil {
			return 0, err
		}
		c.end = len(c.rest) == 0
	}
	if c.end {
		return 0, io.EOF
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}
