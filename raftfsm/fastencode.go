package raftfsm

import (
	"encoding/binary"
	"math"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// Commands that acquire and release locks or write files make up most of a log. This code encodes and decodes
// them without reflection, at a fifth of the cost. entryCodec defines the form and handles the rest.

// The major types of CBOR (RFC 8949, section 3.1) in use.
const (
	cborUint  = 0
	cborBytes = 2
	cborText  = 3
	cborList  = 4
	cborMap   = 5
)

const (
	cborFalse = 0xf4
	cborTrue  = 0xf5
)

// appendHead appends the head of an item: its major type, and its value or length.
func appendHead(b []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n <= math.MaxUint8:
		return append(b, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), n)
}

// appendFast appends an encoded command, or returns false.
func appendFast(b []byte, c *Command) ([]byte, bool) {
	begin := len(b)
	e := &encoder{b: appendHead(b, cborMap, 1), ok: true}
	switch {
	case c.Acquire != nil:
		e.head(cborUint, 9)
		e.succession(&c.Acquire.Succession)
	case c.Release != nil:
		e.head(cborUint, 10)
		e.release(c.Release)
	case c.SetContents != nil:
		e.head(cborUint, 7)
		e.setContents(c.SetContents)
	default:
		return b, false
	}
	if !e.ok {
		return b[:begin], false
	}
	return e.b, true
}

// fastSize returns the length of an encoded claim, or false.
func fastSize(c Claim) (int, bool) {
	e := &encoder{b: make([]byte, 0, 128), ok: true}
	e.claim(&c)
	return len(e.b), e.ok
}

// encoder appends to b. ok is false if it cannot write something.
type encoder struct {
	b  []byte
	ok bool
}

func (e *encoder) head(major byte, n uint64) { e.b = appendHead(e.b, major, n) }

// open begins a struct of so many fields, and optional ones that are set.
func (e *encoder) open(always int, more ...bool) {
	for _, set := range more {
		if set {
			always++
		}
	}
	e.head(cborMap, uint64(always))
}

func (e *encoder) uint(key, n uint64) {
	e.head(cborUint, key)
	e.head(cborUint, n)
}

func (e *encoder) text(key uint64, s string) {
	e.head(cborUint, key)
	e.head(cborText, uint64(len(s)))
	e.b = append(e.b, s...)
}

// list begins a list. Empty lists have two forms, null and empty, so that encoder leaves them to entryCodec.
func (e *encoder) list(key uint64, n int) {
	e.head(cborUint, key)
	e.head(cborList, uint64(n))
	e.ok = e.ok && n > 0
}

func (e *encoder) ref(key uint64, r namespace.Ref) {
	e.head(cborUint, key)
	e.open(2)
	e.text(1, string(r.Name))
	e.uint(2, uint64(r.Instance))
}

func (e *encoder) mutation(m *session.Mutation) {
	e.head(cborUint, 1)
	e.open(4, len(m.Outstanding) > 0)
	e.uint(1, uint64(m.Session))
	e.uint(2, uint64(m.Number))
	e.uint(3, uint64(m.HighestIssued))
	if len(m.Outstanding) > 0 {
		e.list(4, len(m.Outstanding))
		for _, n := range m.Outstanding {
			e.head(cborUint, uint64(n))
		}
	}
	e.uint(5, m.Hash)
}

func (e *encoder) preconditions(key uint64, list []Precondition) {
	if len(list) == 0 {
		return
	}
	e.list(key, len(list))
	for _, p := range list {
		e.open(3)
		e.text(1, string(p.Lock))
		e.uint(2, uint64(p.Mode))
		e.uint(3, uint64(p.Generation))
	}
}

func (e *encoder) succession(s *Succession) {
	e.open(2)
	e.ref(1, s.Lock)
	e.list(2, len(s.Claims))
	for i := range s.Claims {
		e.claim(&s.Claims[i])
	}
}

func (e *encoder) claim(c *Claim) {
	e.open(3, c.Delay != 0, c.Reason != "", c.Try, len(c.Preconditions) > 0, c.DeclaredOwner != "")
	e.mutation(&c.Mutation)
	e.uint(2, uint64(c.Handle))
	e.uint(3, uint64(c.Mode))
	if c.Delay != 0 {
		e.uint(4, uint64(c.Delay))
		e.ok = e.ok && c.Delay > 0
	}
	if c.Reason != "" {
		e.text(5, c.Reason)
	}
	if c.Try {
		e.head(cborUint, 6)
		e.b = append(e.b, cborTrue)
	}
	e.preconditions(7, c.Preconditions)
	if c.DeclaredOwner != "" {
		e.text(8, c.DeclaredOwner)
	}
}

func (e *encoder) release(c *Release) {
	e.open(4, len(c.Successions) > 0)
	e.mutation(&c.Mutation)
	e.ref(2, c.Lock)
	e.uint(3, uint64(c.Handle))
	e.uint(4, uint64(c.Generation))
	if len(c.Successions) > 0 {
		e.list(5, len(c.Successions))
		for i := range c.Successions {
			e.succession(&c.Successions[i])
		}
	}
}

func (e *encoder) setContents(c *SetContents) {
	e.open(2, len(c.Contents) > 0, c.IfContent != nil, len(c.Preconditions) > 0)
	e.mutation(&c.Mutation)
	e.ref(2, c.Node)
	if len(c.Contents) > 0 {
		e.head(cborUint, 3)
		e.head(cborBytes, uint64(len(c.Contents)))
		e.b = append(e.b, c.Contents...)
	}
	if c.IfContent != nil {
		e.uint(4, uint64(*c.IfContent))
	}
	e.preconditions(5, c.Preconditions)
}

// joinEntry writes the same as entryCodec for an Entry with these commands.
func joinEntry(epoch api.Epoch, wall int64, commands []Encoded) ([]byte, bool) {
	size := 40
	for _, c := range commands {
		size += len(c)
	}
	e := &encoder{b: append(make([]byte, 0, size), entryFormat), ok: wall >= 0}
	e.open(2, wall != 0)
	e.uint(1, uint64(epoch))
	if wall != 0 {
		e.uint(2, uint64(wall))
	}
	e.list(3, len(commands))
	for _, c := range commands {
		e.b = append(e.b, c...)
		e.ok = e.ok && len(c) > 0
	}
	return e.b, e.ok
}
