package wire

import (
	"github.com/chubbylock/chubby/api"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// requestSize is what is known of a request before it is decoded. A part is a field, or an element of a list: it may have two bytes, and
// take partWeight when it is decoded.
type requestSize struct{ bytes, parts int }

const (
	// maxParts bounds the parts of a request. The most that one of ours has are some 700: a transaction of 2 * api.MaxTxnSteps steps, with
	// api.MaxOutstanding outstanding requests.
	maxParts   = 1_024
	partWeight = 160
	// someParts is how many callWeight is for, too.
	someParts = callWeight / partWeight
)

// weight is what is counted of a request besides its bytes.
func (r requestSize) weight() int64 { return int64(max(0, r.parts-someParts)) * partWeight }

// sizeOf looks at a request that is not decoded, and takes no memory for it. It counts no further than it is allowed to.
func sizeOf(wire []byte, message protoreflect.MessageDescriptor) (requestSize, error) {
	parts, err := countParts(wire, message, 0)
	return requestSize{bytes: len(wire), parts: parts}, err
}

// countParts adds the parts of a message to those that were counted before. No message of a request is within itself, however deep.
func countParts(wire []byte, message protoreflect.MessageDescriptor, parts int) (_ int, err error) {
	fields := message.Fields()
	for len(wire) > 0 && err == nil {
		number, kind, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return parts, malformed(n)
		}
		if kind == protowire.StartGroupType || kind == protowire.EndGroupType { // they nest without a bound, and there are none
			return parts, api.Errorf(api.InvalidArgument, "the request cannot be read: it has a group")
		}
		wire = wire[n:]
		if n = protowire.ConsumeFieldValue(number, kind, wire); n < 0 {
			return parts, malformed(n)
		}
		parts++
		if field := fields.ByNumber(number); field != nil && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(wire)
			if inner := field.Message(); inner != nil {
				parts, err = countParts(value, inner, parts)
			} else if field.IsList() {
				parts += packed(value, field.Kind())
			}
		}
		if wire = wire[n:]; parts > maxParts && err == nil {
			err = api.Errorf(api.TooLarge, "the request has more than %d fields and elements of lists", maxParts)
		}
	}
	return parts, err
}

func malformed(n int) error {
	return api.Errorf(api.InvalidArgument, "the request cannot be read: %v", protowire.ParseError(n))
}

// packed returns how many numbers are in a list of them that is one field; 0 of texts.
func packed(value []byte, kind protoreflect.Kind) (n int) {
	switch kind {
	case protoreflect.StringKind, protoreflect.BytesKind:
		return 0
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return len(value) / 4
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return len(value) / 8
	}
	for _, b := range value { // the last byte of each has no mark
		n += int(b>>7 ^ 1)
	}
	return n
}
