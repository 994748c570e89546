package raftfsm

import (
	"errors"
	"fmt"
	"math"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
	"github.com/fxamacker/cbor/v2"
)

// codec is the encoding of log entries and snapshot records: CBOR (RFC 8949) in core deterministic encoding,
// structs keyed by small integers. Equal values have equal bytes on every replica and version; a new field gets
// a new number. An unknown field is an error: a replica that skipped it would diverge.
type codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

// newCodec panics only if its options contradict each other.
func newCodec() codec {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	return codec{enc: enc, dec: newDecMode(1 << 24)} // more than any list of a state has: a replica must be able to read what it wrote
}

// newDecMode returns a decoder with a limit of list elements: an element of one byte may take hundreds in
// memory.
func newDecMode(maxElements int) cbor.DecMode {
	dec, err := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		MaxArrayElements:  maxElements,
		MaxNestedLevels:   16,
		UTF8:              cbor.UTF8RejectInvalid,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return dec
}

// Encoded is a command as in a log entry. Its length is what it adds to an entry.
type Encoded []byte

// Encode writes the command for the log of a state of that feature level. The error is Unavailable if the
// command needs a higher one.
func (c Command) Encode(level int) (Encoded, error) {
	if err := checkCommand(c, level); err != nil {
		return nil, err
	}
	if data, ok := encodeFast(&c); ok {
		return data, nil
	}
	data, err := entryCodec.enc.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode a command: %w", err)
	}
	return data, nil
}

// Size returns the encoded size of a part of a command, such as a Claim or an End, in bytes.
func Size(part any) int {
	if c, isClaim := part.(Claim); isClaim {
		if n, ok := fastSize(c); ok {
			return n
		}
	}
	data, err := entryCodec.enc.Marshal(part)
	if err != nil {
		return math.MaxInt32 // too large for every limit; Command.Encode returns the reason
	}
	return len(data)
}

// entryFormat is the first byte of a log entry: the format of the rest. A change that needs no new format is a
// new field, number or command, with a feature level (see MaxLevel).
const entryFormat = 1

// Encode writes a log entry for a state of level MaxLevel.
func (e Entry) Encode() ([]byte, error) {
	commands := make([]Encoded, len(e.Commands))
	for i, c := range e.Commands {
		encoded, err := c.Encode(MaxLevel)
		if err != nil {
			return nil, err
		}
		commands[i] = encoded
	}
	return JoinEntry(e.Epoch, e.Wall, commands), nil
}

// The reasons why an undamaged entry or snapshot is unreadable. errors.Is finds them in every such error.
var (
	// ErrNewer: this version does not know a part of it; a newer one wrote it.
	ErrNewer = errors.New("a newer version of Chubby wrote it")
	// ErrUnreleased: a build from before the first release wrote it.
	ErrUnreleased = errors.New("it was written before v0.1.0, the first release, and no release can read it")
)

// unreadable returns the error for data that could not be read because of err.
func unreadable(what string, err error) error {
	var unknown *cbor.UnknownFieldError
	if errors.As(err, &unknown) {
		err = fmt.Errorf("%w: %w", ErrNewer, err)
	}
	message := what + " cannot be read"
	if !errors.Is(err, ErrNewer) && !errors.Is(err, ErrUnreleased) {
		message += ": it is damaged"
	}
	return &api.Error{Code: api.Corrupt, Message: message, Err: err}
}

// DecodeEntry reads an entry of Entry.Encode or JoinEntry. Anything else is Corrupt, with ErrNewer or
// ErrUnreleased in the chain if that is the reason.
func DecodeEntry(data []byte) (Entry, error) {
	if err := checkEntryFormat(data); err != nil {
		return Entry{}, unreadable("a log entry", err)
	}
	e, ok := decodeFast(data[1:])
	if !ok {
		e = Entry{}
		if err := entryCodec.dec.Unmarshal(data[1:], &e); err != nil {
			return Entry{}, unreadable("a log entry", err)
		}
	}
	for _, c := range e.Commands {
		if c.Cancel == nil {
			continue
		}
		if err := checkCause(c.Cancel.Refusal); err != nil {
			return Entry{}, unreadable("a log entry", err)
		}
	}
	return e, nil
}

func checkEntryFormat(data []byte) error {
	const cborMap = 0b101 // the first three bits of a map; before v0.1.0 entries were maps
	switch {
	case len(data) == 0:
		return errors.New("it is empty")
	case data[0]>>5 == cborMap:
		return ErrUnreleased
	case data[0] == 0:
		return errors.New("it begins with 0")
	case data[0] != entryFormat:
		return fmt.Errorf("%w: it is of format %d, and this replica knows format %d", ErrNewer, data[0], entryFormat)
	}
	return nil
}

// checkCause returns an error for a refusal with an unknown cause: answers to retries depend on it.
func checkCause(r *refusal.Refusal) error {
	switch {
	case r == nil || r.Cause.IsKnown():
		return nil
	case r.Cause == 0:
		return errors.New("it has a refusal without a cause")
	}
	return fmt.Errorf("%w: it has a refusal of %v", ErrNewer, r.Cause)
}

// entryCodec is immutable and safe for concurrent use; making one is expensive.
var entryCodec = newCodec()
