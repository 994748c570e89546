package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// signer makes and checks what clients carry without understanding it: sessions, handles and tickets. Each is a
// kind, its fields, and check digits (Chubby §2.3) over both, keyed with the cell's replicated secret: no
// client can forge one, and any later master can read it.
// It is safe for concurrent use.
type signer struct {
	secret []byte
	macs   sync.Pool // of hash.Hash: to begin with the secret costs more than the digits of a token
}

func newSigner(secret []byte) *signer {
	return &signer{secret: secret, macs: sync.Pool{New: func() any { return hmac.New(sha256.New, secret) }}}
}

// signerOf returns the signer with a master's secret. It is another one only after the cell's state was replaced.
func (s *service) signerOf(m *master.Master) *signer {
	secret := m.State().Secret
	known := s.signer.Load()
	if known == nil || !bytes.Equal(known.secret, secret) {
		known = newSigner(secret)
		s.signer.Store(known)
	}
	return known
}

const (
	sessionToken byte = 1
	handleToken  byte = 2
	ticketToken  byte = 3
	pageMark     byte = 4 // the kind of the key of marks; see marks
	// Proofs of sequencers have kind 5 (package master).
)

const macSize = 16 // bytes of HMAC-SHA-256

func (s *signer) seal(kind byte, fields []byte) []byte {
	token := append([]byte{kind}, fields...)
	digits := s.digits(token)
	return append(token, digits[:]...)
}

func (s *signer) digits(body []byte) [macSize]byte {
	mac := s.macs.Get().(hash.Hash)
	defer s.macs.Put(mac)
	mac.Reset()
	mac.Write(body)
	var sum [sha256.Size]byte
	return [macSize]byte(mac.Sum(sum[:0]))
}

// unseal returns the fields of a token of that kind, if its check digits are right.
func (s *signer) unseal(kind byte, token []byte) ([]byte, bool) {
	if len(token) < 1+macSize || token[0] != kind {
		return nil, false
	}
	body, digits := token[:len(token)-macSize], s.digits(token[:len(token)-macSize])
	if !hmac.Equal(digits[:], token[len(token)-macSize:]) {
		return nil, false
	}
	return body[1:], true
}

func (s *signer) session(id api.SessionID) []byte {
	return s.seal(sessionToken, binary.AppendUvarint(nil, uint64(id)))
}

func (s *signer) parseSession(token []byte) (api.SessionID, error) {
	if fields, ok := s.unseal(sessionToken, token); ok {
		if id, n := binary.Uvarint(fields); n == len(fields) {
			return api.SessionID(id), nil
		}
	}
	return 0, api.Errorf(api.SessionExpired, "this is no session of this cell; open a new one")
}

func (s *signer) handle(h master.Handle) []byte {
	var flags uint64
	for bit, is := range [...]bool{h.Ephemeral, h.Directory, h.CachesLock, h.NoCache} {
		if is {
			flags |= 1 << bit
		}
	}
	var fields []byte
	for _, n := range []uint64{
		uint64(h.Owner.Session), uint64(h.Owner.Handle), uint64(h.Node.Instance), uint64(h.Rights), flags, uint64(h.Delay),
		uint64(h.Epoch), uint64(h.Events), uint64(h.Precondition.Mode), uint64(h.Precondition.Generation), uint64(len(h.Precondition.Lock)),
	} {
		fields = binary.AppendUvarint(fields, n)
	}
	return s.seal(handleToken, append(append(fields, h.Precondition.Lock...), h.Node.Name...))
}

// noHandle rejects an invalid handle and another session's in the same words, so that a caller learns nothing
// about others' handles.
func noHandle() error {
	return api.Errorf(api.BadHandle, "this is no handle of this session; open the node anew")
}

func (s *signer) parseHandle(token []byte) (master.Handle, error) {
	fields, ok := s.unseal(handleToken, token)
	n, names, whole := uvarints(fields, 11)
	if !ok || !whole || n[10] > uint64(len(names)) {
		return master.Handle{}, noHandle()
	}
	lock, name := names[:n[10]], names[n[10]:]
	has := func(bit int) bool { return n[4]>>bit&1 == 1 }
	return master.Handle{
		Owner: namespace.Owner{Session: api.SessionID(n[0]), Handle: api.HandleID(n[1])},
		Node:  namespace.Ref{Name: api.Name(name), Instance: api.Generation(n[2])}, Rights: namespace.Rights(n[3]),
		Ephemeral: has(0), Directory: has(1), CachesLock: has(2), NoCache: has(3), Delay: time.Duration(n[5]),
		Epoch: api.Epoch(n[6]), Events: master.EventSet(n[7]),
		Precondition: raftfsm.Precondition{Lock: api.Name(lock), Mode: api.LockMode(n[8]), Generation: api.Generation(n[9])},
	}, nil
}

func (s *signer) ticket(t master.Ticket, lock namespace.Ref, id api.SessionID, request api.RequestNumber) []byte {
	fields := binary.AppendUvarint(nil, uint64(t.Epoch))
	for _, n := range []uint64{t.Number, uint64(id), uint64(request), uint64(lock.Instance)} {
		fields = binary.AppendUvarint(fields, n)
	}
	return s.seal(ticketToken, fields)
}

// parseTicket reads the ticket of a request for a lock. With any other token, it returns the zero ticket, and
// the request goes to the end of the queue.
func (s *signer) parseTicket(token []byte, lock namespace.Ref, id api.SessionID, request api.RequestNumber) master.Ticket {
	fields, ok := s.unseal(ticketToken, token)
	numbers, rest, whole := uvarints(fields, 5)
	if !ok || !whole || len(rest) > 0 || numbers[2] != uint64(id) || numbers[3] != uint64(request) || numbers[4] != uint64(lock.Instance) {
		return master.Ticket{}
	}
	return master.Ticket{Epoch: api.Epoch(numbers[0]), Number: numbers[1]}
}

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

// verified caches tokens of one kind with right check digits, and their contents: reading a handle allocates, and its
// owner takes a look-up. It is safe for concurrent use. The zero value is empty.
type verified[V any] struct {
	mu     sync.Mutex // guards the fields below; no other mutex is locked while it is held
	secret []byte     // of the cached tokens
	values map[string]V
}

// Limits of the cache: tokens, and the bytes of one. A full cache is emptied; tokens in use return with their next call.
const (
	maxVerified     = 4_096
	maxVerifiedSize = 256
)

// get returns the contents of a token, if it was put with the same secret.
func (c *verified[V]) get(secret, token []byte) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !bytes.Equal(c.secret, secret) {
		return value, false
	}
	value, ok = c.values[string(token)]
	return value, ok
}

// put caches the contents of a token whose check digits are right with that secret.
func (c *verified[V]) put(secret, token []byte, value V) {
	if len(token) > maxVerifiedSize {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil || len(c.values) >= maxVerified || !bytes.Equal(c.secret, secret) {
		c.secret, c.values = secret, map[string]V{}
	}
	c.values[string(token)] = value
}
