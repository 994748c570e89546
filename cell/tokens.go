package cell

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// signer makes and checks what clients carry without understanding it:
// sessions, handles and tickets. Each is a kind, its fields, and check digits
// (Chubby §2.3) over both, keyed with the cell's replicated secret: a client
// cannot forge one, and any later master can read it.
type signer struct{ secret []byte }

// The kinds of token.
const (
	sessionToken byte = 1
	handleToken  byte = 2
	ticketToken  byte = 3
)

const macSize = 16 // bytes of HMAC-SHA-256

func (s signer) seal(kind byte, fields []byte) []byte {
	token := append([]byte{kind}, fields...)
	mac := hmac.New(sha256.New, s.secret)
	mac.Write(token)
	return append(token, mac.Sum(nil)[:macSize]...)
}

// unseal returns the fields of a token of that kind whose check digits are
// right.
func (s signer) unseal(kind byte, token []byte) ([]byte, bool) {
	if len(token) < 1+macSize || token[0] != kind {
		return nil, false
	}
	body, digits := token[:len(token)-macSize], token[len(token)-macSize:]
	mac := hmac.New(sha256.New, s.secret)
	mac.Write(body)
	if !hmac.Equal(mac.Sum(nil)[:macSize], digits) {
		return nil, false
	}
	return body[1:], true
}

func (s signer) session(id api.SessionID) []byte {
	return s.seal(sessionToken, binary.AppendUvarint(nil, uint64(id)))
}

func (s signer) parseSession(token []byte) (api.SessionID, error) {
	if fields, ok := s.unseal(sessionToken, token); ok {
		if id, n := binary.Uvarint(fields); n == len(fields) {
			return api.SessionID(id), nil
		}
	}
	return 0, api.Errorf(api.SessionExpired, "this is no session of this cell; open a new one")
}

// handle is what a handle token says: enough for a new master to recreate the
// handle (Chubby §2.3, §2.9 step 8).
type handle struct {
	owner        namespace.Owner
	node         namespace.Ref
	rights       namespace.Rights
	ephemeral    bool
	directory    bool
	delay        time.Duration        // lock-delay of locks taken through it
	epoch        api.Epoch            // of the master that made it
	events       eventSet             // that it was opened for
	precondition raftfsm.Precondition // of SetSequencer; zero if there is none
}

// preconditions returns the handle's precondition, for a command.
func (h handle) preconditions() []raftfsm.Precondition {
	if h.precondition == (raftfsm.Precondition{}) {
		return nil
	}
	return []raftfsm.Precondition{h.precondition}
}

// eventSet is a set of kinds of events.
type eventSet uint64

func (s eventSet) with(k api.EventKind) eventSet { return s | 1<<k }
func (s eventSet) has(k api.EventKind) bool      { return s&(1<<k) != 0 }

// Flags of a handle token.
const (
	ofEphemeral uint64 = 1 << 0
	ofDirectory uint64 = 1 << 1
)

func (s signer) handle(h handle) []byte {
	var flags uint64
	if h.ephemeral {
		flags |= ofEphemeral
	}
	if h.directory {
		flags |= ofDirectory
	}
	var fields []byte
	for _, n := range []uint64{
		uint64(h.owner.Session), uint64(h.owner.Handle), uint64(h.node.Instance), uint64(h.rights), flags, uint64(h.delay),
		uint64(h.epoch), uint64(h.events), uint64(h.precondition.Mode), uint64(h.precondition.Generation), uint64(len(h.precondition.Lock)),
	} {
		fields = binary.AppendUvarint(fields, n)
	}
	return s.seal(handleToken, append(append(fields, h.precondition.Lock...), h.node.Name...))
}

func (s signer) parseHandle(token []byte) (handle, error) {
	fields, ok := s.unseal(handleToken, token)
	n, names, whole := uvarints(fields, 11)
	if !ok || !whole || n[10] > uint64(len(names)) {
		return handle{}, api.Errorf(api.BadHandle, "this is no handle of this cell; open the node anew")
	}
	lock, name := names[:n[10]], names[n[10]:]
	return handle{
		owner: namespace.Owner{Session: api.SessionID(n[0]), Handle: api.HandleID(n[1])},
		node:  namespace.Ref{Name: api.Name(name), Instance: api.Generation(n[2])}, rights: namespace.Rights(n[3]),
		ephemeral: n[4]&ofEphemeral != 0, directory: n[4]&ofDirectory != 0, delay: time.Duration(n[5]),
		epoch: api.Epoch(n[6]), events: eventSet(n[7]),
		precondition: raftfsm.Precondition{Lock: api.Name(lock), Mode: api.LockMode(n[8]), Generation: api.Generation(n[9])},
	}, nil
}

// ticket is a place in the queue of one lock, good for one request. Those of an
// earlier epoch come before those of a later one.
type ticket struct {
	epoch  api.Epoch
	number uint64
}

func (t ticket) before(other ticket) bool {
	return t.epoch < other.epoch || t.epoch == other.epoch && t.number < other.number
}

func (s signer) ticket(t ticket, lock namespace.Ref, id api.SessionID, request api.RequestNumber) []byte {
	fields := binary.AppendUvarint(nil, uint64(t.epoch))
	for _, n := range []uint64{t.number, uint64(id), uint64(request), uint64(lock.Instance)} {
		fields = binary.AppendUvarint(fields, n)
	}
	return s.seal(ticketToken, fields)
}

// parseTicket reads the ticket of that request for that lock, whose instance is
// nobody else's; anything else is the zero ticket, and its bearer goes to the end
// of the queue.
func (s signer) parseTicket(token []byte, lock namespace.Ref, id api.SessionID, request api.RequestNumber) ticket {
	fields, ok := s.unseal(ticketToken, token)
	numbers, rest, whole := uvarints(fields, 5)
	if !ok || !whole || len(rest) > 0 || numbers[2] != uint64(id) || numbers[3] != uint64(request) || numbers[4] != uint64(lock.Instance) {
		return ticket{}
	}
	return ticket{epoch: api.Epoch(numbers[0]), number: numbers[1]}
}

// uvarints reads n numbers and returns what follows them.
func uvarints(data []byte, n int) (numbers []uint64, rest []byte, ok bool) {
	numbers = make([]uint64, n)
	for i := range numbers {
		value, size := binary.Uvarint(data)
		if size <= 0 {
			return numbers, nil, false
		}
		numbers[i], data = value, data[size:]
	}
	return numbers, data, true
}
