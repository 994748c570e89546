package raftfsm

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// The major types of CBOR (RFC 8949, section 3.1) in use.
const (
	cborUint     = 0
	cborNegative = 1
	cborBytes    = 2
	cborText     = 3
	cborList     = 4
	cborMap      = 5
)

const (
	cborFalse = 0xf4
	cborTrue  = 0xf5
)

// walker encodes and decodes commands that acquire and release locks or write files, which make up most of a
// log, without reflection, at a fifth of the cost. entryCodec defines the form and handles the rest. One walk
// over the fields of a type, in the order of their keys, does both: it writes them to the end of b, or reads
// them from its beginning. After something that it does not handle a walker is bad, and its results mean
// nothing. It reads only the form that it writes: ascending keys, no empty list.
type walker struct {
	b     []byte
	reads bool
	bad   bool

	// Of lists that are read: one allocation serves many commands, which have the same lifetime.
	commands      []Command
	claims        []Claim
	numbers       []api.RequestNumber
	preconditions []Precondition
	successions   []Succession
}

// maxFast is the maximum length of a list that a walker reads: it allocates a list before its items are read.
const maxFast = 16 * api.MaxBatch

// encodeFast returns a command as entryCodec writes it, or false.
func encodeFast(c *Command) (Encoded, bool) {
	w := walker{b: make([]byte, 0, 128)}
	ok := w.command(c) && !w.bad
	return w.b, ok
}

// fastSize returns the length of an encoded claim, or false.
func fastSize(c Claim) (int, bool) {
	w := walker{b: make([]byte, 0, 128)}
	w.claim(&c)
	return len(w.b), !w.bad
}

// JoinEntry writes a log entry from encoded commands. It adds less than 40 bytes to theirs.
func JoinEntry(epoch api.Epoch, wall int64, commands []Encoded) []byte {
	size := 40
	for _, c := range commands {
		size += len(c)
	}
	w := walker{b: append(make([]byte, 0, size), entryFormat)}
	f := w.open()
	integer(&w, &f, 1, &epoch, always)
	switch {
	case !w.has(&f, 2, wall != 0):
	case wall < 0:
		w.putHead(cborNegative, uint64(^wall))
	default:
		w.putHead(cborUint, uint64(wall))
	}
	w.has(&f, 3, true)
	w.putHead(cborList, uint64(len(commands)))
	for _, c := range commands {
		w.b = append(w.b, c...)
	}
	return w.b
}

// decodeFast reads an entry without its first byte, like entryCodec. On false, entryCodec reads the entry, or
// explains the fault.
func decodeFast(data []byte) (Entry, bool) {
	w := walker{b: data, reads: true}
	var e Entry
	f := w.open()
	integer(&w, &f, 1, &e.Epoch, always)
	integer(&w, &f, 2, &e.Wall, ifSet)
	for i := range list(&w, &f, 3, &e.Commands, &w.commands, always) {
		if whole := w.b; !w.command(&e.Commands[i]) {
			rest, err := entryCodec.dec.UnmarshalFirst(whole, &e.Commands[i])
			w.b, w.bad = rest, w.bad || err != nil
		}
	}
	w.close(&f)
	return e, !w.bad && len(w.b) == 0
}

// putHead writes the head of an item: its major type, and its value or length.
func (w *walker) putHead(major byte, n uint64) {
	major <<= 5
	switch {
	case n < 24:
		w.b = append(w.b, major|byte(n))
	case n <= math.MaxUint8:
		w.b = append(w.b, major|24, byte(n))
	case n <= math.MaxUint16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, major|25), uint16(n))
	case n <= math.MaxUint32:
		w.b = binary.BigEndian.AppendUint32(append(w.b, major|26), uint32(n))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, major|27), n)
	}
}

// head writes the head of an item, or reads it and returns its value or length.
func (w *walker) head(major byte, n uint64) uint64 {
	if !w.reads {
		w.putHead(major, n)
		return n
	}
	if w.bad || len(w.b) == 0 || w.b[0]>>5 != major {
		w.bad = true
		return 0
	}
	info := w.b[0] & 0x1f
	w.b = w.b[1:]
	if info < 24 {
		return uint64(info)
	}
	size := 1 << (info - 24)
	if info > 27 || len(w.b) < size {
		w.bad = true
		return 0
	}
	n = 0
	for _, b := range w.b[:size] {
		n = n<<8 | uint64(b)
	}
	w.b = w.b[size:]
	shorter := []uint64{23, math.MaxUint8, math.MaxUint16, math.MaxUint32}
	w.bad = n <= shorter[info-24]
	return n
}

// take reads n bytes, which stay part of the entry.
func (w *walker) take(n uint64) []byte {
	if n == 0 || n > uint64(len(w.b)) {
		w.bad = true
		return nil
	}
	taken := w.b[:n]
	w.b = w.b[n:]
	return taken
}

// fields are those of one struct.
type fields struct {
	at   int    // where the head of the written struct is
	left uint64 // of the fields to read, those whose keys have not been read
	key  uint64 // of the next field to read; 0: it has not been read
}

// When a field is written: always, or if it is set. It may be missing when it is read.
const (
	always = true
	ifSet  = false
)

// open begins a struct. It has less than 24 fields, so its head is a byte, in which has counts those that are
// written.
func (w *walker) open() fields {
	if w.reads {
		return fields{left: w.head(cborMap, 0)}
	}
	w.b = append(w.b, cborMap<<5)
	return fields{at: len(w.b) - 1}
}

// has reports whether the field with that key is next: whether it was read, or is set and to be written.
func (w *walker) has(f *fields, key uint64, set bool) bool {
	if !w.reads {
		if set {
			w.b[f.at]++
			w.putHead(cborUint, key)
		}
		return set
	}
	if f.key == 0 && f.left > 0 {
		f.left--
		f.key = w.head(cborUint, 0)
		w.bad = w.bad || f.key == 0
	}
	if w.bad || f.key != key {
		return false
	}
	f.key = 0
	return true
}

// close ends a struct: what is left was not expected.
func (w *walker) close(f *fields) { w.bad = w.bad || f.left > 0 || f.key != 0 }

func value[T ~uint8 | ~uint64 | ~int64](w *walker, v *T) {
	n := w.head(cborUint, uint64(*v))
	if w.reads {
		*v = T(n)
	}
	w.bad = w.bad || *v < 0 || uint64(*v) != n
}

func integer[T ~uint8 | ~uint64 | ~int64](w *walker, f *fields, key uint64, v *T, required bool) {
	if w.has(f, key, required || *v != 0) {
		value(w, v)
	}
}

// boolean walks over a field that is only written if it is true.
func boolean(w *walker, f *fields, key uint64, v *bool) {
	switch {
	case !w.has(f, key, *v):
	case !w.reads:
		w.b = append(w.b, cborTrue)
	default:
		b := w.take(1)
		w.bad = w.bad || b[0] != cborTrue && b[0] != cborFalse
		*v = !w.bad && b[0] == cborTrue
	}
}

// text reads a copy, so that a node with the text does not keep the whole entry in memory.
func text[T ~string](w *walker, f *fields, key uint64, v *T, required bool) {
	if !w.has(f, key, required || *v != "") {
		return
	}
	n := w.head(cborText, uint64(len(*v)))
	switch {
	case !w.reads:
		w.b = append(w.b, *v...)
	case n > 0:
		taken := w.take(n)
		//mutant: _ = utf8.Valid
		w.bad = w.bad || !utf8.Valid(taken)
		*v = T(taken)
	}
}

// list begins a list, and returns its length; the caller walks over the items. They are read into room, after
// those of others. Empty lists have two forms, null and empty, which are left to entryCodec.
func list[T any](w *walker, f *fields, key uint64, v, room *[]T, required bool) int {
	if !w.has(f, key, required || len(*v) > 0) {
		return 0
	}
	n := int(min(w.head(cborList, uint64(len(*v))), math.MaxInt32))
	w.bad = w.bad || n == 0 || w.reads && (n > len(w.b) || n > maxFast) // an item takes at least a byte
	if w.bad {
		return 0
	}
	if !w.reads {
		return n
	}
	if items := *room; cap(items)-len(items) < n {
		*room = make([]T, 0, max(n, min(cap(w.commands), api.MaxBatch)))
	}
	begin := len(*room)
	*room = (*room)[:begin+n]
	*v = (*room)[begin : begin+n : begin+n]
	return n
}

// target returns what a pointer points to, which is made if it is read.
func target[T any](w *walker, p **T) *T {
	if w.reads {
		*p = new(T)
	}
	return *p
}

// command walks over a command. It returns false for one of another kind.
func (w *walker) command(c *Command) bool {
	f := w.open()
	switch {
	case w.has(&f, 7, c.SetContents != nil):
		w.setContents(target(w, &c.SetContents))
	case w.has(&f, 9, c.Acquire != nil):
		w.succession(&target(w, &c.Acquire).Succession)
	case w.has(&f, 10, c.Release != nil):
		w.release(target(w, &c.Release))
	default:
		return false
	}
	w.close(&f)
	return true
}

func (w *walker) ref(s *fields, key uint64, r *namespace.Ref) {
	if !w.has(s, key, true) {
		return
	}
	f := w.open()
	text(w, &f, 1, &r.Name, always)
	integer(w, &f, 2, &r.Instance, always)
	w.close(&f)
}

func (w *walker) mutation(s *fields, m *session.Mutation) {
	if !w.has(s, 1, true) {
		return
	}
	f := w.open()
	integer(w, &f, 1, &m.Session, always)
	integer(w, &f, 2, &m.Number, always)
	integer(w, &f, 3, &m.HighestIssued, always)
	for i := range list(w, &f, 4, &m.Outstanding, &w.numbers, ifSet) {
		value(w, &m.Outstanding[i])
	}
	integer(w, &f, 5, &m.Hash, always)
	w.close(&f)
}

func (w *walker) conditions(s *fields, key uint64, conditions *[]Precondition) {
	for i := range list(w, s, key, conditions, &w.preconditions, ifSet) {
		p := &(*conditions)[i]
		f := w.open()
		text(w, &f, 1, &p.Lock, always)
		integer(w, &f, 2, &p.Mode, always)
		integer(w, &f, 3, &p.Generation, always)
		w.close(&f)
	}
}

func (w *walker) succession(s *Succession) {
	f := w.open()
	w.ref(&f, 1, &s.Lock)
	for i := range list(w, &f, 2, &s.Claims, &w.claims, always) {
		w.claim(&s.Claims[i])
	}
	w.close(&f)
}

func (w *walker) release(c *Release) {
	f := w.open()
	w.mutation(&f, &c.Mutation)
	w.ref(&f, 2, &c.Lock)
	integer(w, &f, 3, &c.Handle, always)
	integer(w, &f, 4, &c.Generation, always)
	for i := range list(w, &f, 5, &c.Successions, &w.successions, ifSet) {
		w.succession(&c.Successions[i])
	}
	w.close(&f)
}

func (w *walker) setContents(c *SetContents) {
	f := w.open()
	w.mutation(&f, &c.Mutation)
	w.ref(&f, 2, &c.Node)
	if w.has(&f, 3, len(c.Contents) > 0) {
		n := w.head(cborBytes, uint64(len(c.Contents)))
		if w.reads {
			c.Contents = append([]byte(nil), w.take(n)...)
		} else {
			w.b = append(w.b, c.Contents...)
		}
	}
	if w.has(&f, 4, c.IfContent != nil) {
		value(w, target(w, &c.IfContent))
	}
	w.conditions(&f, 5, &c.Preconditions)
	w.close(&f)
}
