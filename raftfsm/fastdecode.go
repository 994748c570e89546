package raftfsm

import (
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// decodeFast reads an entry without its first byte, like entryCodec. On false, entryCodec reads the entry, or
// explains the fault. decodeFast accepts only the encoder's form: ascending keys, no empty list.
func decodeFast(data []byte) (Entry, bool) {
	d := &decoder{data: data}
	var e Entry
	d.fields(func(key uint64) {
		switch key {
		case 1:
			e.Epoch = api.Epoch(d.uint())
		case 2:
			e.Wall = d.int()
		case 3:
			e.Commands = list(d, &d.commands, d.command)
		default:
			d.bad = true
		}
	})
	return e, !d.bad && len(d.data) == 0
}

// decoder reads items from the beginning of data. After something unexpected it is bad, and its results mean
// nothing.
type decoder struct {
	data []byte
	bad  bool

	// Of lists: one allocation serves many commands, which have the same lifetime.
	commands      []Command
	claims        []Claim
	numbers       []api.RequestNumber
	preconditions []Precondition
	successions   []Succession
}

func (d *decoder) head(major byte) uint64 {
	if len(d.data) == 0 || d.data[0]>>5 != major {
		d.bad = true
		return 0
	}
	info := d.data[0] & 0x1f
	d.data = d.data[1:]
	if info < 24 {
		return uint64(info)
	}
	size := 1 << (info - 24)
	if info > 27 || len(d.data) < size {
		d.bad = true
		return 0
	}
	n := uint64(0)
	for _, b := range d.data[:size] {
		n = n<<8 | uint64(b)
	}
	d.data = d.data[size:]
	shorter := []uint64{23, math.MaxUint8, math.MaxUint16, math.MaxUint32}
	if n <= shorter[info-24] {
		d.bad = true
	}
	return n
}

// take reads n bytes, which stay part of the entry.
func (d *decoder) take(n uint64) []byte {
	if n == 0 || n > uint64(len(d.data)) {
		d.bad = true
		return nil
	}
	taken := d.data[:n]
	d.data = d.data[n:]
	return taken
}

// fields reads a struct: it calls read for each key, to read the value.
func (d *decoder) fields(read func(key uint64)) {
	last := uint64(0)
	for n := d.head(cborMap); n > 0 && !d.bad; n-- {
		key := d.head(cborUint)
		if key <= last {
			d.bad = true
			return
		}
		last = key
		read(key)
	}
}

// list reads a list into room, after the items of others.
func list[T any](d *decoder, room *[]T, one func() T) []T {
	n := d.head(cborList)
	if n == 0 || n > uint64(len(d.data)) { // an item takes at least a byte
		d.bad = true
		return nil
	}
	if items := *room; uint64(cap(items)-len(items)) < n {
		*room = make([]T, 0, min(max(n, uint64(cap(d.commands))), api.MaxBatch))
	}
	begin := len(*room)
	for ; n > 0 && !d.bad; n-- {
		*room = append(*room, one())
	}
	return slices.Clip((*room)[begin:])
}

func (d *decoder) uint() uint64 { return d.head(cborUint) }

func (d *decoder) int() int64 {
	n := d.uint()
	d.bad = d.bad || n > math.MaxInt64
	return int64(n)
}

func (d *decoder) small() uint8 {
	n := d.uint()
	d.bad = d.bad || n > math.MaxUint8
	return uint8(n)
}

func (d *decoder) bool() bool {
	b := d.take(1)
	d.bad = d.bad || b[0] != cborTrue && b[0] != cborFalse
	return !d.bad && b[0] == cborTrue
}

// text returns a copy, so that a node with the text does not keep the whole entry in memory.
func (d *decoder) text() string {
	n := d.head(cborText)
	if n == 0 {
		return ""
	}
	text := d.take(n)
	//mutant: _ = utf8.Valid
	d.bad = d.bad || !utf8.Valid(text)
	return string(text)
}

func (d *decoder) number() api.RequestNumber { return api.RequestNumber(d.uint()) }

func (d *decoder) command() Command {
	whole := d.data
	var c Command
	if d.head(cborMap) != 1 {
		d.bad = true
		return c
	}
	switch d.uint() {
	case 7:
		c.SetContents = d.setContents()
	case 9:
		c.Acquire = &Acquire{d.succession()}
	case 10:
		c.Release = d.release()
	default:
		d.data = whole
		return d.otherCommand()
	}
	return c
}

func (d *decoder) otherCommand() (c Command) {
	rest, err := entryCodec.dec.UnmarshalFirst(d.data, &c)
	d.data, d.bad = rest, d.bad || err != nil
	return c
}

func (d *decoder) ref() (r namespace.Ref) {
	d.fields(func(key uint64) {
		switch key {
		case 1:
			r.Name = api.Name(d.text())
		case 2:
			r.Instance = api.Generation(d.uint())
		default:
			d.bad = true
		}
	})
	return r
}

func (d *decoder) mutation() (m session.Mutation) {
	d.fields(func(key uint64) {
		switch key {
		case 1:
			m.Session = api.SessionID(d.uint())
		case 2:
			m.Number = d.number()
		case 3:
			m.HighestIssued = d.number()
		case 4:
			m.Outstanding = list(d, &d.numbers, d.number)
		case 5:
			m.Hash = d.uint()
		default:
			d.bad = true
		}
	})
	return m
}

func (d *decoder) precondition() (p Precondition) {
	d.fields(func(key uint64) {
		switch key {
		case 1:
			p.Lock = api.Name(d.text())
		case 2:
			p.Mode = api.LockMode(d.small())
		case 3:
			p.Generation = api.Generation(d.uint())
		default:
			d.bad = true
		}
	})
	return p
}

func (d *decoder) succession() (s Succession) {
	d.fields(func(key uint64) {
		switch key {
		case 1:
			s.Lock = d.ref()
		case 2:
			s.Claims = list(d, &d.claims, d.claim)
		default:
			d.bad = true
		}
	})
	return s
}

func (d *decoder) claim() (c Claim) {
	d.fields(func(key uint64) {
		switch key {
		case 1:
			c.Mutation = d.mutation()
		case 2:
			c.Handle = api.HandleID(d.uint())
		case 3:
			c.Mode = api.LockMode(d.small())
		case 4:
			c.Delay = time.Duration(d.int())
		case 5:
			c.Reason = d.text()
		case 6:
			c.Try = d.bool()
		case 7:
			c.Preconditions = list(d, &d.preconditions, d.precondition)
		case 8:
			c.DeclaredOwner = d.text()
		default:
			d.bad = true
		}
	})
	return c
}

func (d *decoder) release() *Release {
	c := new(Release)
	d.fields(func(key uint64) {
		switch key {
		case 1:
			c.Mutation = d.mutation()
		case 2:
			c.Lock = d.ref()
		case 3:
			c.Handle = api.HandleID(d.uint())
		case 4:
			c.Generation = api.Generation(d.uint())
		case 5:
			c.Successions = list(d, &d.successions, d.succession)
		default:
			d.bad = true
		}
	})
	return c
}

func (d *decoder) setContents() *SetContents {
	c := new(SetContents)
	d.fields(func(key uint64) {
		switch key {
		case 1:
			c.Mutation = d.mutation()
		case 2:
			c.Node = d.ref()
		case 3:
			c.Contents = append([]byte(nil), d.take(d.head(cborBytes))...)
		case 4:
			generation := api.Generation(d.uint())
			c.IfContent = &generation
		case 5:
			c.Preconditions = list(d, &d.preconditions, d.precondition)
		default:
			d.bad = true
		}
	})
	return c
}
