// Package backup is the format of backups: everything that a cell replicates, at one moment, in one file that
// checks itself.
//
// A backup is
//
//	magic | record(about) | chunk… | end | SHA-256
//
// A record and a chunk are a uvarint length and that many bytes; the end is a chunk of length 0. The chunks together
// are a snapshot (package raftfsm), and the sum covers everything before it. The About is JSON, so that people can
// read the beginning of the file.
//
// A backup lacks the key that signs sessions and handles, so nobody can make these with a backup alone. It has all
// contents, in the clear.
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
	"iter"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
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
	Recovered string     `json:"recovered_from,omitempty"` // the replica whose directory it was made of, without a majority; empty: a master's
}

// Write writes a backup of a state, taken at a time, in seconds since 1970; see About.Recovered.
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

// chunkWriter writes chunks.
type chunkWriter struct{ w io.Writer }

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

// Backup is a whole backup.
type Backup struct {
	About
	Bytes    int64         // of the backup
	Checksum string        // SHA-256 of everything in it, in hexadecimal
	State    raftfsm.State // without its secret
}

// Read reads a backup into memory, and checks its sum and every invariant of its state. Otherwise it fails with Corrupt,
// also if anything follows the backup.
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

// whole returns the error of a backup that ends too early.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// reader sums what it reads.
type reader struct {
	from *bufio.Reader
	sum  hash.Hash
	n    int64
}

func (in *reader) Read(p []byte) (int, error) {
	n, err := in.from.Read(p)
	in.sum.Write(p[:n])
	in.n += int64(n)
	return n, err
}

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

// chunkReader reads the contents of chunks, to their end.
type chunkReader struct {
	in   *reader
	rest []byte
	end  bool
}

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

// Follower checks, from its sum, that a backup arrived as it was sent, and does not keep it. Read checks more.
type Follower struct {
	head []byte    // the beginning, with the About
	last []byte    // the newest bytes, as many as the sum has
	sum  hash.Hash // of all before them
	n    int64
}

// NewFollower returns an empty Follower.
func NewFollower() *Follower { return &Follower{sum: sha256.New()} }

// Write implements io.Writer. It never fails.
func (f *Follower) Write(p []byte) (int, error) {
	if room := len(magic) + binary.MaxVarintLen64 + maxRecord - len(f.head); room > 0 && f.n == int64(len(f.head)) {
		f.head = append(f.head, p[:min(len(p), room)]...)
	}
	f.n += int64(len(p))
	f.last = append(f.last, p...)
	if over := len(f.last) - sha256.Size; over > 0 {
		f.sum.Write(f.last[:over])
		f.last = append(f.last[:0], f.last[over:]...)
	}
	return len(p), nil
}

// Finish returns the backup's About, its length and its sum, in hexadecimal, if it is whole.
func (f *Follower) Finish() (about About, size int64, checksum string, err error) {
	broken := &api.Error{Code: api.Corrupt, Op: "check the backup", Message: "it has not arrived as it was sent, or not all of it; take another one"}
	text, ok := bytes.CutPrefix(f.head, []byte(magic))
	if !ok {
		return about, 0, "", broken
	}
	length, n := binary.Uvarint(text)
	if n <= 0 || length > maxRecord || uint64(len(text)-n) < length {
		return about, 0, "", broken
	}
	if err := json.Unmarshal(text[n:n+int(length)], &about); err != nil {
		broken.Err = err
		return about, 0, "", broken
	}
	sum := f.sum.Sum(nil)
	if !bytes.Equal(sum, f.last) {
		return about, 0, "", broken
	}
	return about, f.n, hex.EncodeToString(sum), nil
}

// partSize limits the encoded nodes or quotas of a part, unless it has a single one. Their envelope comes on top.
const partSize = 128 << 10

// Parts returns a state in parts, for a cell to restore: the quotas of principals, and the nodes, parents before their
// children. It also returns the number of quotas.
func Parts(state raftfsm.State) (parts iter.Seq2[[]byte, error], quotas int) {
	var all []raftfsm.PrincipalQuota
	for principal, q := range state.Quotas() {
		all = append(all, raftfsm.PrincipalQuota{Principal: principal, Quota: q})
	}
	nodes := func(yield func(*namespace.Node) bool) {
		for node := range state.Tree.All() {
			bare := *node
			bare.Mode, bare.Holders, bare.Openers, bare.Revoked = 0, nil, nil, nil
			if !yield(&bare) {
				return
			}
		}
	}
	return func(yield func([]byte, error) bool) {
		for some := range pieces(slices.Values(all)) {
			if part := (raftfsm.RestoreAdd{Quotas: some}); !yield(part.Encode()) {
				return
			}
		}
		for some := range pieces(iter.Seq[*namespace.Node](nodes)) {
			if part := (raftfsm.RestoreAdd{Nodes: some}); !yield(part.Encode()) {
				return
			}
		}
	}, len(all)
}

// pieces cuts a list into pieces of at most partSize encoded bytes, or of one element.
func pieces[T any](list iter.Seq[T]) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		var piece []T
		bytes := 0
		for one := range list {
			size := raftfsm.Size(one)
			if len(piece) > 0 && bytes+size > partSize {
				if !yield(piece) {
					return
				}
				piece, bytes = nil, 0
			}
			piece, bytes = append(piece, one), bytes+size
		}
		if len(piece) > 0 {
			yield(piece)
		}
	}
}
