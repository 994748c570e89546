package raftfsm

import (
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/fxamacker/cbor/v2"
)

// codec is the form of entries in the log and of records in a snapshot: CBOR
// (RFC 8949) in its core deterministic encoding, structs keyed by small
// integers. Equal values have equal bytes on every replica and version, a new
// field is a new number, and what this version does not know is an error, for
// a replica that skipped it would diverge.
type codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

// newCodec panics only if the options below contradict each other.
func newCodec() codec {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	dec, err := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		MaxArrayElements:  1 << 24, // above what any list of a state grows to: what was written must be readable
		MaxNestedLevels:   16,
		UTF8:              cbor.UTF8RejectInvalid,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return codec{enc: enc, dec: dec}
}

// EncodeEntry writes an entry for the Raft log.
func EncodeEntry(e Entry) ([]byte, error) {
	data, err := entryCodec.enc.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode a log entry: %w", err)
	}
	return data, nil
}

// DecodeEntry reads what EncodeEntry wrote. Anything else is Corrupt.
func DecodeEntry(data []byte) (Entry, error) {
	var e Entry
	if err := entryCodec.dec.Unmarshal(data, &e); err != nil {
		return Entry{}, &api.Error{Code: api.Corrupt, Message: "a log entry cannot be read: it is damaged, or was written by a newer version", Err: err}
	}
	return e, nil
}

// entryCodec is immutable and safe for concurrent use; making one costs more
// than using it.
var entryCodec = newCodec()
