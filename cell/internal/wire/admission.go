package wire

import (
	"errors"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// requestSize is the size of a request before it is decoded. A part is a field or a list element: two bytes may
// become partWeight.
type requestSize struct{ bytes, parts int }

const (
	// maxParts limits the parts of a request. Our largest has some 700: a transaction of 2 * api.MaxTxnSteps
	// steps and api.MaxOutstanding outstanding requests.
	maxParts   = 1_024
	partWeight = 160
	// someParts is how many parts callWeight includes.
	someParts = callWeight / partWeight
)

// weight is what counts of a request besides its bytes.
func (r requestSize) weight() int64 { return int64(max(0, r.parts-someParts)) * partWeight }

// sizeOf measures a request, up to maxParts, without decoding it or allocating memory.
func sizeOf(wire []byte, message protoreflect.MessageDescriptor) (requestSize, error) {
	parts, err := countParts(wire, message, 0)
	return requestSize{bytes: len(wire), parts: parts}, err
}

// countParts adds the parts of a message to parts. No message contains itself, so the recursion ends.
func countParts(wire []byte, message protoreflect.MessageDescriptor, parts int) (_ int, err error) {
	fields := message.Fields()
	for len(wire) > 0 && err == nil {
		number, kind, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return parts, malformed(n)
		}
		if kind == protowire.StartGroupType || kind == protowire.EndGroupType { // groups nest without a limit, and no request has one
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

// packed returns how many numbers a packed list has; 0 for texts.
func packed(value []byte, kind protoreflect.Kind) (n int) {
	switch kind {
	case protoreflect.StringKind, protoreflect.BytesKind:
		return 0
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return len(value) / 4
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return len(value) / 8
	}
	for _, b := range value { // the last byte of each number has no continuation bit
		n += int(b>>7 ^ 1)
	}
	return n
}

// Limits of requests that are always served.
const (
	// maxKeepAlive limits a KeepAlive, in bytes. A session has one at a time, which is never refused.
	maxKeepAlive = 1 << 10
	// maxVital limits other vital calls, in bytes. Most of it is the list of a session's outstanding requests.
	maxVital = 4 << 10
)

// admit begins to serve an arrived call, or refuses it. The caller must call served afterwards, which does
// nothing after a refusal.
func (c *call) admit(size requestSize) error {
	if c.rpc.keepsAlive && size.bytes > maxKeepAlive { // it is always served
		return api.Errorf(api.InvalidArgument, "a KeepAlive of %d bytes; it has at most %d", size.bytes, maxKeepAlive)
	}
	err := c.admitRequest(size)
	if err == nil && size.weight() > 0 {
		c.of.all.relieve(c.of, c.of.held())
	}
	return err
}

func (c *call) admitRequest(size requestSize) error {
	a, mayWait := c.of, !c.rpc.isVital(size)
	late := c.pace(size)
	a.mu.Lock()
	defer a.mu.Unlock()
	c.begun = true
	if late != nil {
		c.wasted()
		return late
	}
	if !c.open {
		return api.Errorf(api.Cancelled, "the call was given up before it was served")
	}
	c.request += size.weight()
	a.add(size.weight())
	if mayWait {
		//mutant: if err := error(nil); err != nil {
		if err := a.full(c.request); err != nil {
			return err
		}
	}
	c.serving = true
	return nil
}

// isVital reports whether such a call is served even above the memory limits. Else a client that fills a limit would
// end other sessions at its address: they could neither extend leases, nor find the master, nor release locks.
// Vital requests are small, and counted.
func (r rpc) isVital(size requestSize) bool {
	return size.bytes <= maxVital && (r.endless || r.givesBack)
}

func (c *call) served() {
	c.of.mu.Lock()
	c.serving = false
	c.settle()
	last := c.of.closed && c.of.bytes == 0
	c.of.mu.Unlock()
	if last {
		c.of.all.forget(c.of.origin, c.of.conn.clock())
	}
}

// full returns an error if there is no room for n more bytes, or for a request of n bytes already counted. a.mu is held.
func (a *account) full(n int64) error {
	if limit := a.all.limits.conn; a.bytes > limit && n > smallCall {
		return api.Errorf(api.Unavailable, "the calls of this connection hold %d bytes of the replica's memory, and at most %d are allowed; wait for some answers, and read them, then try again", a.bytes, limit)
	}
	if a.bytes <= leastHeld {
		return nil
	}
	return a.all.full(a.origin)
}

// countReply counts a reply, or rejects it: a long one while others are unread, any one while much of the same call
// is unread. No KeepAlive reply is rejected for its length, since it extends a lease.
//
// The error is Uncertain: the call may have taken effect, and only a retry finds out. Unavailable would deny that.
func (c *call) countReply(reply any) error {
	message, ok := reply.(proto.Message)
	if !ok {
		return nil
	}
	_, alive := reply.(*pb.KeepAliveReply)
	bytes, err := c.admitReply(int64(proto.Size(message)), alive)
	var e *api.Error
	if errors.As(err, &e) {
		return &api.Error{Code: api.Uncertain, Message: e.Message}
	}
	c.of.all.relieve(c.of, bytes)
	return err
}

// admitReply counts a reply of n bytes if it is vital or fits. It returns what the account holds.
func (c *call) admitReply(n int64, vital bool) (int64, error) {
	a := c.of
	a.mu.Lock()
	defer a.mu.Unlock()
	if !c.open {
		return a.bytes, nil // nobody receives it
	}
	if n > smallCall && !vital {
		if err := a.full(n); err != nil {
			return a.bytes, err
		}
	}
	if c.reply > smallCall {
		return a.bytes, api.Errorf(api.Unavailable, "the client does not read what it is told: %d bytes wait; read them, then try again", c.reply)
	}
	c.reply += n
	a.add(n)
	return a.bytes, nil
}

// pace returns an error if calls of the same principal or address come too fast. The last arrival is its clock.
func (c *call) pace(size requestSize) *api.Error {
	if c.rpc.endless && size.bytes <= maxVital {
		return nil
	}
	a, all := c.of, c.of.all
	now := a.conn.LastArrival()
	var err *api.Error
	const advice = "; try again later, have programs call less often, or raise the limit"
	more := time.Duration(0)
	if c.rpc.givesBack {
		more = burst // it is served after calls are refused
	}
	switch p := a.conn.caller.Load(); {
	case p != nil && !p.calls.take(now, all.bounds.Rates.Calls, more):
		err = api.Errorf(api.Unavailable, "%q makes more than %d calls a second (max-calls-per-principal)"+advice, p.name, all.bounds.Rates.Calls)
	case p != nil && c.rpc.opens && !p.opens.take(now, all.bounds.Rates.Sessions, 0):
		err = api.Errorf(api.Unavailable, "%q opens more than %d sessions a second (max-new-sessions-per-principal)"+advice, p.name, all.bounds.Rates.Sessions)
	case !a.origin.calls.take(now, all.bounds.Rates.CallsPerAddress, more):
		err = api.Errorf(api.Unavailable, "more than %d calls a second come from %s (max-calls-per-address)"+advice, all.bounds.Rates.CallsPerAddress, a.origin.name)
	default:
		return nil
	}
	all.told.Late()
	if n, ok := all.saidLate.Next(); ok {
		all.log.Warn("refused a client's call", "event", "call_shed", "from", a.origin.name, "error", err, "count", n)
	}
	return err
}
