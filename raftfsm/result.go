package raftfsm

import (
	"errors"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// Answer is the answer to a request. It is kept for retries.
type Answer struct {
	Refusal *refusal.Refusal `cbor:"1,keyasint,omitempty"` // nil if the request was done

	Created    bool           `cbor:"2,keyasint,omitempty"` // of Open
	Generation api.Generation `cbor:"3,keyasint,omitempty"` // of a grant
	Lock       namespace.Ref  `cbor:"4,keyasint,omitzero"`  // of a grant
	Mode       api.LockMode   `cbor:"5,keyasint,omitempty"` // of a grant
	Handle     api.HandleID   `cbor:"6,keyasint,omitempty"` // of a grant
	Stat       *Stat          `cbor:"7,keyasint,omitempty"`

	// Written has one element for each operation of a Txn, without the name, which the request has; empty for a
	// deletion. It is a pointer, since every command makes an Answer.
	Written *[]Stat `cbor:"8,keyasint,omitempty" since:"3"`
}

// Stat is a node's metadata when a request was done.
type Stat struct {
	Name      api.Name       `cbor:"1,keyasint"`
	Kind      api.Kind       `cbor:"2,keyasint"`
	Ephemeral bool           `cbor:"3,keyasint,omitempty"`
	Instance  api.Generation `cbor:"4,keyasint"`
	Content   api.Generation `cbor:"5,keyasint"`
	Lock      api.Generation `cbor:"6,keyasint,omitempty"`
	ACLs      api.Generation `cbor:"7,keyasint"`
	Checksum  uint64         `cbor:"8,keyasint"`
	Size      int            `cbor:"9,keyasint,omitempty"`
	Children  int            `cbor:"10,keyasint,omitempty"`
	ACL       api.ACL        `cbor:"11,keyasint"`

	ModifiedUnix int64 `cbor:"12,keyasint,omitempty" since:"2"`
}

// Result is everything that one command did: its caller's answer, and the effects, which are not kept, on which
// the master acts.
type Result struct {
	Answer
	namespace.Dropped // what it points to never changes; a claim of the command may hold now what is vacant

	Session api.SessionID // of CreateSession

	Claims      []ClaimResult          // of every claim, in order
	Ended       []Ended                // ended sessions
	Changes     []namespace.Change     // visible to clients, in order
	Revoked     []namespace.Revocation // locks being taken away
	Terminating []api.SessionID        // sessions ended by others than their clients
	Restored    bool                   // a backup has replaced the cell's contents
	GaveUp      bool                   // a restore was given up
}

// Ended is a session that has ended, and its principal.
type Ended struct {
	End
	Principal string
	Host      string
	PID       int
}

// ClaimResult is the result of one claim. A Pending claim has no answer yet: it goes on waiting.
type ClaimResult struct {
	Owner   namespace.Owner
	Number  api.RequestNumber
	Pending bool
	Again   bool // a retry of an answered claim
	Answer  Answer
}

// Code returns the refusal's code, api.OK without one.
func (a Answer) Code() api.Code { return a.Refusal.Code() }

// Err returns the refusal as an error for its caller, nil without one. The error says whether the refusal is
// final.
func (a Answer) Err() error {
	if a.Refusal == nil {
		return nil
	}
	e := a.Refusal.Err()
	e.Final = refusal.IsFinal(e.Code)
	return e
}

// refused returns the answer with err. The packages namespace and session return refusals; any other error
// becomes a cause without details, the same on every replica.
func refused(err error) Answer {
	r := &refusal.Refusal{Cause: refusal.Unexplained}
	errors.As(err, &r)
	return Answer{Refusal: r}
}

// refuse returns the result of a command that did nothing because of err.
func refuse(err error) Result { return Result{Answer: refused(err)} }

func stat(n *namespace.Node) *Stat {
	return &Stat{
		Name: n.Name, Kind: n.Kind, Ephemeral: n.Ephemeral, Instance: n.Instance, Content: n.Content, Lock: n.Lock,
		ACLs: n.ACLs, Checksum: n.Checksum, Size: len(n.Contents), Children: n.Children, ACL: n.ACL, ModifiedUnix: n.ModifiedUnix,
	}
}

// In returns the metadata with the node's path in the named cell.
func (s *Stat) In(cell string) (api.Stat, error) {
	path, err := s.Name.In(cell)
	if err != nil {
		return api.Stat{}, err
	}
	return api.Stat{
		Path: path, Kind: s.Kind, Ephemeral: s.Ephemeral, Instance: s.Instance, Content: s.Content, Lock: s.Lock,
		ACLs: s.ACLs, Checksum: s.Checksum, Size: s.Size, Children: s.Children, ACL: s.ACL, ModifiedUnix: s.ModifiedUnix,
	}, nil
}
