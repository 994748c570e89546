package cell

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
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
	owner namespace.Owner
	node  namespace.Ref
	mode  handleMode
	delay time.Duration // lock-delay of locks taken through it
	epoch api.Epoch     // of the master that made it
}

// handleMode is what a handle was opened for (Chubby §2.6).
type handleMode byte

const (
	forReading   handleMode = 1 << 0
	forWriting   handleMode = 1 << 1 // and locking
	forACLs      handleMode = 1 << 2
	ofEphemeral  handleMode = 1 << 3
	ofDirectory  handleMode = 1 << 4
	allModeFlags            = forReading | forWriting | forACLs | ofEphemeral | ofDirectory
)

func (s signer) handle(h handle) []byte {
	fields := binary.AppendUvarint(nil, uint64(h.owner.Session))
	for _, n := range []uint64{uint64(h.owner.Handle), uint64(h.node.Instance), uint64(h.mode), uint64(h.delay), uint64(h.epoch)} {
		fields = binary.AppendUvarint(fields, n)
	}
	return s.seal(handleToken, append(fields, h.node.Name...))
}

func (s signer) parseHandle(token []byte) (handle, error) {
	fields, ok := s.unseal(handleToken, token)
	numbers, name, whole := uvarints(fields, 6)
	if !ok || !whole || numbers[3] > uint64(allModeFlags) {
		return handle{}, api.Errorf(api.BadHandle, "this is no handle of this cell; open the node anew")
	}
	return handle{
		owner: namespace.Owner{Session: api.SessionID(numbers[0]), Handle: api.HandleID(numbers[1])},
		node:  namespace.Ref{Name: api.Name(name), Instance: api.Generation(numbers[2])},
		mode:  handleMode(numbers[3]), delay: time.Duration(numbers[4]), epoch: api.Epoch(numbers[5]),
	}, nil
}

// ticket is a place in the queue of a lock, good for one request. Those of an
// earlier epoch come before those of a later one.
type ticket struct {
	epoch  api.Epoch
	number uint64
}

func (t ticket) before(other ticket) bool {
	return t.epoch < other.epoch || t.epoch == other.epoch && t.number < other.number
}

func (s signer) ticket(t ticket, id api.SessionID, request api.RequestNumber) []byte {
	fields := binary.AppendUvarint(nil, uint64(t.epoch))
	for _, n := range []uint64{t.number, uint64(id), uint64(request)} {
		fields = binary.AppendUvarint(fields, n)
	}
	return s.seal(ticketToken, fields)
}

// parseTicket reads the ticket of that request; anything else is no ticket, and
// its bearer goes to the end of the queue.
func (s signer) parseTicket(token []byte, id api.SessionID, request api.RequestNumber) (ticket, bool) {
	fields, ok := s.unseal(ticketToken, token)
	numbers, rest, whole := uvarints(fields, 4)
	if !ok || !whole || len(rest) > 0 || numbers[2] != uint64(id) || numbers[3] != uint64(request) {
		return ticket{}, false
	}
	return ticket{epoch: api.Epoch(numbers[0]), number: numbers[1]}, true
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
