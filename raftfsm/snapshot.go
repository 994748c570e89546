package raftfsm

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// A snapshot is
//
//	magic | record(header) | record(session)… | record(node)… | record(delay)… | record(quota)… | record(past)… | staged… | SHA-256
//
// where a record is a uvarint length and that many bytes of CBOR, the header counts the records of each kind,
// staged is the nodes and quotas of a backup in restore, parents come before their children, and the sum covers
// everything before it. Equal states have equal snapshots.
//
// The number in the magic is the format; builds before the first release wrote
// 1.
const (
	magicText      = "chubby snapshot "
	snapshotFormat = 2
	snapshotMagic  = magicText + "2\n"
)

// maxRecord is the maximum length of a record, far above the largest that is written, such as a lock with a
// hundred thousand holders and reasons: a replica could not start from a snapshot beyond it. The reader
// allocates no more than it has read.
const maxRecord = 1 << 30

type header struct {
	Cell     string     `cbor:"1,keyasint"`
	CellID   api.CellID `cbor:"2,keyasint"`
	Secret   []byte     `cbor:"3,keyasint"`
	Epoch    api.Epoch  `cbor:"4,keyasint"`
	Applied  uint64     `cbor:"5,keyasint"`
	Counter  uint64     `cbor:"6,keyasint"`
	Sessions int        `cbor:"7,keyasint"`
	Nodes    int        `cbor:"8,keyasint"`
	Delays   int        `cbor:"9,keyasint"`
	Quotas   int        `cbor:"10,keyasint"`
	Level    int        `cbor:"11,keyasint,omitempty"`
	History  uint64     `cbor:"12,keyasint"`

	Staged *stagedRecord `cbor:"13,keyasint,omitempty" since:"3"`
	Origin api.CellID    `cbor:"14,keyasint,omitempty" since:"3"`
	Roster *Roster       `cbor:"15,keyasint,omitempty" since:"3"`
	Past   *pastHeader   `cbor:"16,keyasint,omitempty" since:"3"`

	Restored *Restoration `cbor:"17,keyasint,omitempty" since:"3"`

	Unproved api.Generation `cbor:"18,keyasint,omitempty" since:"3"`
}

type stagedRecord struct {
	Announced RestoreBegin  `cbor:"1,keyasint"`
	Session   api.SessionID `cbor:"2,keyasint"`
	Part      uint64        `cbor:"3,keyasint,omitempty"`
	Sealed    bool          `cbor:"4,keyasint,omitempty"`
	Nodes     int           `cbor:"5,keyasint"`
	Quotas    int           `cbor:"6,keyasint,omitempty"`
	SinceUnix int64         `cbor:"7,keyasint,omitempty" since:"3"`
}

type quotaRecord struct {
	Principal string    `cbor:"1,keyasint"`
	Quota     api.Quota `cbor:"2,keyasint"`
}

type delayRecord struct {
	Name  api.Name        `cbor:"1,keyasint"`
	Delay namespace.Delay `cbor:"2,keyasint"`
}

// WriteTo writes a snapshot of the state.
func (s State) WriteTo(w io.Writer) (int64, error) {
	out := &recordWriter{w: w, sum: sha256.New()}
	out.bytes([]byte(snapshotMagic))
	out.record(s.header())
	for one := range s.Sessions.All() {
		out.record(one)
	}
	for node := range s.Tree.All() {
		out.record(node)
	}
	for name, d := range s.Tree.Delays() {
		out.record(delayRecord{Name: name, Delay: d})
	}
	for principal, q := range s.Quotas() {
		out.record(quotaRecord{Principal: principal, Quota: q})
	}
	for at, list := range s.past.byNode.All() {
		out.record(pastRecord{Name: at.name, Holdings: list})
	}
	if s.staged != nil {
		for node := range s.staged.tree.All() {
			out.record(node)
		}
		for principal, q := range s.staged.quotas.All() {
			out.record(quotaRecord{Principal: principal, Quota: q})
		}
	}
	sum := out.sum.Sum(nil)
	out.bytes(sum)
	if out.err != nil {
		return out.n, fmt.Errorf("write a snapshot: %w", out.err)
	}
	return out.n, nil
}

func (s State) header() header {
	delays := 0
	for range s.Tree.Delays() {
		delays++
	}
	var roster *Roster
	if s.Roster.Version > 0 {
		roster = &s.Roster
	}
	return header{
		Roster: roster, Past: s.past.header(),
		Staged: s.staged.record(), Origin: s.Origin, Restored: s.Restored, Unproved: s.Unproved,
		Cell: s.Cell, CellID: s.CellID, Secret: s.Secret, Epoch: s.Epoch, Applied: s.Applied, Counter: s.Counter, History: s.History,
		Sessions: s.Sessions.Len(), Nodes: s.Tree.Counts().Nodes, Delays: delays, Quotas: s.quotas.Len(), Level: s.Level,
	}
}

// Hash returns the SHA-256 of the state's snapshot, in hexadecimal: the same on replicas that have applied the
// same entries.
func (s State) Hash() (string, error) {
	sum := sha256.New()
	if _, err := s.WriteTo(sum); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// recordWriter keeps the first error and the sum of the written bytes.
type recordWriter struct {
	w   io.Writer
	sum hash.Hash
	n   int64
	err error
}

func (o *recordWriter) bytes(b []byte) {
	if o.err != nil {
		return
	}
	o.sum.Write(b)
	var n int
	n, o.err = o.w.Write(b)
	o.n += int64(n)
}

func (o *recordWriter) record(v any) {
	data, err := entryCodec.enc.Marshal(v)
	if err != nil && o.err == nil {
		o.err = err
	}
	o.bytes(binary.AppendUvarint(nil, uint64(len(data))))
	o.bytes(data)
}

// ReadState reads a snapshot, and checks its sum and the state's invariants. known is the replica's highest
// feature level: MaxLevel outside of tests. Anything but a whole snapshot is Corrupt, with ErrNewer or
// ErrUnreleased in the chain if that is why. It allocates at most a small multiple of the bytes read.
func ReadState(r io.Reader, known int) (State, error) {
	in := &recordReader{r: bufio.NewReader(r), sum: sha256.New(), known: known}
	s, err := in.state()
	if err == nil {
		err = s.Check()
	}
	if err != nil {
		return State{}, unreadable("a snapshot", err)
	}
	return s, nil
}

// recordReader keeps the sum of the read bytes, and the first error of a record.
type recordReader struct {
	r     *bufio.Reader
	sum   hash.Hash
	known int // the replica's highest feature level
	err   error
}

func (in *recordReader) state() (State, error) {
	s := NewState()
	magic := make([]byte, len(snapshotMagic))
	if err := in.full(magic); err != nil {
		return s, err
	}
	if err := checkMagic(string(magic)); err != nil {
		return s, err
	}
	var h header
	if err := in.record(&h); err != nil {
		return s, fmt.Errorf("header: %w", err)
	}
	if err := checkLevel(h.Level, in.known); err != nil {
		return s, err
	}
	s.Cell, s.CellID, s.Secret, s.Epoch, s.Applied, s.Counter, s.History, s.Level = h.Cell, h.CellID, h.Secret, h.Epoch, h.Applied, h.Counter, h.History, h.Level
	//mutant: s.Unproved = h.Unproved
	s.Restored, s.Unproved = h.Restored, h.Unproved
	if s.Origin = h.Origin; h.Roster != nil {
		s.Roster = *h.Roster
	}
	s.Edit()
	err := in.records(&s, h)
	s.Settle()
	if err != nil {
		return s, err
	}
	if is := s.header(); is.Sessions != h.Sessions || is.Nodes != h.Nodes || is.Delays != h.Delays || is.Quotas != h.Quotas {
		return s, fmt.Errorf("something is in it twice: of %d sessions, %d nodes, %d delays and %d quotas there are %d, %d, %d and %d",
			h.Sessions, h.Nodes, h.Delays, h.Quotas, is.Sessions, is.Nodes, is.Delays, is.Quotas)
	}
	want := in.sum.Sum(nil)
	sum := make([]byte, len(want))
	if _, err := io.ReadFull(in.r, sum); err != nil {
		return s, fmt.Errorf("checksum: %w", err)
	}
	if !bytes.Equal(sum, want) {
		return s, fmt.Errorf("its checksum is %x, and %x was computed", sum, want)
	}
	if _, err := in.r.ReadByte(); err != io.EOF {
		return s, fmt.Errorf("something follows its checksum")
	}
	return s, nil
}

// checkMagic returns an error unless magic begins a snapshot of this format.
func checkMagic(magic string) error {
	number, ok := strings.CutPrefix(magic, magicText)
	number, _, _ = strings.Cut(number, "\n")
	format, err := strconv.Atoi(number)
	switch {
	case magic == snapshotMagic:
		return nil
	case !ok || err != nil || format < 1 || format == snapshotFormat:
		return fmt.Errorf("it begins with %q", magic)
	case format == 1:
		return ErrUnreleased
	}
	return fmt.Errorf("%w: it is of format %d, and this replica knows format %d", ErrNewer, format, snapshotFormat)
}

// each reads n records, and has each of them added, unless there was an error before.
func each[T any](in *recordReader, n int, what string, add func(*T) error) {
	for i := 0; i < n && in.err == nil; i++ {
		one := new(T)
		err := in.record(one)
		if err == nil {
			err = add(one)
		}
		if err != nil {
			in.err = fmt.Errorf("%s %d of %d: %w", what, i+1, n, err)
		}
	}
}

func (in *recordReader) records(s *State, h header) error {
	each(in, h.Sessions, "session", func(one *session.Session[Answer]) error {
		for _, r := range one.Open {
			if err := checkCause(r.Answer.Refusal); err != nil {
				return err
			}
		}
		s.Sessions.Put(one)
		return nil
	})
	each(in, h.Nodes, "node", s.Tree.Restore)
	each(in, h.Delays, "delay", func(d *delayRecord) error {
		s.Tree.RestoreDelay(d.Name, d.Delay)
		return nil
	})
	each(in, h.Quotas, "quota", func(q *quotaRecord) error {
		s.restoreQuota(q.Principal, q.Quota)
		return nil
	})
	if in.err == nil && h.Past != nil {
		in.err = in.past(s, h.Past)
	}
	if in.err == nil && h.Staged != nil {
		in.err = in.staged(s, h.Staged)
	}
	return in.err
}

func (in *recordReader) past(s *State, h *pastHeader) error {
	each(in, h.Nodes, "history", func(one *pastRecord) error {
		if slices.Contains(one.Holdings, nil) {
			return errors.New("a holding is empty")
		}
		at := place{name: one.Name}
		if node, there := s.Tree.Get(one.Name); there {
			at.creator = node.Creator
		}
		s.past.forget(at)
		s.past.byNode.Set(at, one.Holdings)
		s.past.adjust(at.creator, len(one.Holdings))
		return nil
	})
	if in.err != nil {
		return in.err
	}
	if len(h.Hands) > 0 {
		s.past.countShares()
	}
	for _, of := range h.Hands {
		s.past.setHand(of.Creator, of.Hand)
	}
	if is := s.past.header(); is == nil || is.Nodes != h.Nodes || !slices.Equal(is.Hands, h.Hands) {
		return fmt.Errorf("some history is in it twice, or it has none: of %d nodes and %d hands, there are %d nodes", h.Nodes, len(h.Hands), s.past.byNode.Len())
	}
	return nil
}

func (in *recordReader) staged(s *State, h *stagedRecord) error {
	s.staged = newStaged(h.Announced, h.Session, h.SinceUnix)
	s.staged.part, s.staged.sealed = h.Part, h.Sealed
	each(in, h.Nodes, "restored node", s.staged.tree.Restore)
	each(in, h.Quotas, "restored quota", func(q *quotaRecord) error {
		s.staged.quotas.Set(q.Principal, q.Quota)
		return nil
	})
	if is := s.staged.record(); in.err == nil && *is != *h {
		return fmt.Errorf("something that is restored is in it twice: of %d nodes and %d quotas there are %d and %d", h.Nodes, h.Quotas, is.Nodes, is.Quotas)
	}
	return in.err
}

func (in *recordReader) full(b []byte) error {
	_, err := io.ReadFull(in.r, b)
	in.sum.Write(b)
	return err
}

func (in *recordReader) record(v any) error {
	size, err := binary.ReadUvarint(in.r)
	if err != nil {
		return err
	}
	if size > maxRecord {
		return fmt.Errorf("a record of %d bytes; at most %d are written", size, maxRecord)
	}
	in.sum.Write(binary.AppendUvarint(nil, size))
	var data bytes.Buffer
	data.Grow(int(min(size, 64<<10)) + bytes.MinRead)
	if _, err := io.CopyN(&data, in.r, int64(size)); err != nil {
		return err
	}
	in.sum.Write(data.Bytes())
	return entryCodec.dec.Unmarshal(data.Bytes(), v)
}
