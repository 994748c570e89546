package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/internal/seeds"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

func someHandle() master.Handle {
	return master.Handle{
		Owner: namespace.Owner{Session: 7, Handle: 300}, Node: namespace.Ref{Name: "/a/b", Instance: 41},
		Rights: namespace.ToRead | namespace.ToWrite, Ephemeral: true, Delay: 3 * time.Second, Epoch: 12,
		Events: master.EventSet(0).With(api.EventContentsModified), Precondition: raftfsm.Precondition{Lock: "/lock", Mode: api.Shared, Generation: 9},
	}
}

// A handle token carries all that a later master needs to recreate the handle:
// its mode, and the master that made it (Chubby §2.3).
func TestHandleTokenSaysItAll(t *testing.T) {
	s := signer{secret: []byte("secret")}
	for _, want := range []master.Handle{someHandle(), {}, {Directory: true, Node: namespace.Ref{Instance: 1}}} {
		if got, err := s.parseHandle(s.handle(want)); err != nil || got != want {
			t.Errorf("got  %+v (%v)\nwant %+v", got, err, want)
		}
	}
}

// Check digits: a client cannot forge a handle, nor change one (Chubby §2.3).
func TestHandleTokenCannotBeForged(t *testing.T) {
	s := signer{secret: []byte("secret")}
	token := s.handle(someHandle())
	for i := range token {
		forged := bytes.Clone(token)
		forged[i] ^= 1
		if _, err := s.parseHandle(forged); !errors.Is(err, api.BadHandle) {
			t.Errorf("with byte %d changed: %v", i, err)
		}
	}
	if _, err := (signer{secret: []byte("another cell")}).parseHandle(token); !errors.Is(err, api.BadHandle) {
		t.Errorf("of another cell: %v", err)
	}
	if _, err := s.parseHandle(s.session(7)); !errors.Is(err, api.BadHandle) {
		t.Errorf("a session in place of a handle: %v", err)
	}
}

// FuzzTokens: whatever a client sends, reading it does not panic. A token that
// was not sealed is refused, and a sealed one with odd fields does no harm.
func FuzzTokens(f *testing.F) {
	seeds.Add(f)
	s := signer{secret: []byte("secret")}
	f.Add(s.handle(someHandle()))
	f.Add(s.session(7))
	f.Add(s.ticket(master.Ticket{Epoch: 3, Number: 4}, namespace.Ref{Name: "/f", Instance: 9}, 7, 300))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, token := range [][]byte{data, s.seal(handleToken, data), s.seal(sessionToken, data), s.seal(ticketToken, data)} {
			if h, err := s.parseHandle(token); err == nil {
				if again, err := s.parseHandle(s.handle(h)); err != nil || again != h {
					t.Errorf("%+v reads back as %+v (%v)", h, again, err)
				}
			}
			_, _ = s.parseSession(token)                                             // must not panic
			_ = s.parseTicket(token, namespace.Ref{Name: "/f", Instance: 9}, 7, 300) // must not panic
		}
	})
}

// A ticket is valid only for the lock in whose queue it was given.
func TestTicketOfAnotherLock(t *testing.T) {
	s := signer{secret: make([]byte, 32)}
	a, b := namespace.Ref{Name: "/a", Instance: 3}, namespace.Ref{Name: "/b", Instance: 4}
	given := master.Ticket{Epoch: 1, Number: 5}
	token := s.ticket(given, a, 7, 9)
	if got := s.parseTicket(token, a, 7, 9); got != given {
		t.Errorf("%+v reads back as %+v", given, got)
	}
	if got := s.parseTicket(token, b, 7, 9); got != (master.Ticket{}) {
		t.Errorf("for another lock it is %+v", got)
	}
}

// A token is known by the secret with which its check digits were right, and by all of
// its bytes; so many are remembered, and no long ones.
func TestVerifiedTokens(t *testing.T) {
	var c verified[int]
	one, other, token := []byte("secret"), []byte("another"), []byte("token")
	if _, ok := c.get(nil, token); ok {
		t.Error("a token is known before it was put")
	}
	c.put(one, token, 7)
	if value, ok := c.get(one, token); !ok || value != 7 {
		t.Errorf("the token says %d (%v), want 7", value, ok)
	}
	if _, ok := c.get(one, []byte("tokem")); ok {
		t.Error("a token with other digits is known")
	}
	if _, ok := c.get(other, token); ok {
		t.Error("the token is known with another secret")
	}
	c.put(other, []byte("its own"), 8)
	if _, ok := c.get(other, token); ok {
		t.Error("a token of another secret is known, after one of this secret was put")
	}
	c.put(one, make([]byte, maxVerifiedSize+1), 9)
	if _, ok := c.get(one, make([]byte, maxVerifiedSize+1)); ok {
		t.Error("a long token is known")
	}
	for n := range uint64(3 * maxVerified) {
		c.put(one, binary.AppendUvarint(nil, n), 1)
		if len(c.values) > maxVerified {
			t.Fatalf("%d tokens are remembered", len(c.values))
		}
	}
}
