package raftfsm

import (
	"errors"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// Answer is what a request's caller is told. It is kept for retries.
type Answer struct {
	Refusal *refusal.Refusal `cbor:"1,keyasint,omitempty"` // nil if it was done

	Created    bool           `cbor:"2,keyasint,omitempty"` // of Open
	Generation api.Generation `cbor:"3,keyasint,omitempty"` // of a grant
	Lock       namespace.Ref  `cbor:"4,keyasint,omitzero"`  // of a grant
	Mode       api.LockMode   `cbor:"5,keyasint,omitempty"` // of a grant
	Handle     api.HandleID   `cbor:"6,keyasint,omitempty"` // of a grant
	Stat       *Stat          `cbor:"7,keyasint,omitempty"`
}

// Stat is a node's metadata as it was when a request was done.
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

// Result is everything that one command did: the answer to its caller, and
// what its effects were, for the master to act upon. The effects are not kept.
type Result struct {
	Answer
	Session api.SessionID // of CreateSession

	Claims      []ClaimResult          // of every claim in the command, in order
	Ended       []Ended                // sessions that are no more
	Free        []api.Name             // locks that somebody who waits might now have
	Vacant      []namespace.Vacancy    // that this command made; one that names a successor may have filled it
	Delayed     []api.Name             // locks on which a lock-delay began or was renewed
	Dying       []namespace.Ref        // ephemeral nodes that nobody has open any more
	Changes     []namespace.Change     // of what clients see of nodes, in their order
	Revoked     []namespace.Revocation // locks that are being taken away
	Terminating []api.SessionID        // sessions that are being ended by another than their client
}

// Ended is a session that is no more, and whose it was.
type Ended struct {
	End
	Principal string
	Host      string
	PID       int
}

// ClaimResult is what became of one claim. While it is Pending the claim has no
// answer yet: the lock is not to be had, and the claimant goes on waiting.
type ClaimResult struct {
	Owner   namespace.Owner
	Number  api.RequestNumber
	Pending bool
	Answer  Answer
}

// Code returns the code of the answer's refusal, api.OK if it is none.
func (a Answer) Code() api.Code { return a.Refusal.Code() }

// Err returns the answer's refusal as an error for its caller, nil if it is none. It says
// whether the refusal is final.
func (a Answer) Err() error {
	if a.Refusal == nil {
		return nil
	}
	e := a.Refusal.Err()
	e.Final = refusal.IsFinal(e.Code)
	return e
}

// refused is the answer that carries err. What the pure packages return is a refusal; of
// anything else there is nothing to say that every replica would say alike.
func refused(err error) Answer {
	r := &refusal.Refusal{Cause: refusal.Unexplained}
	errors.As(err, &r)
	return Answer{Refusal: r}
}

// refuse is the result of a command that did nothing because of err.
func refuse(err error) Result { return Result{Answer: refused(err)} }

// stat describes a node as it is now.
func stat(n *namespace.Node) *Stat {
	return &Stat{
		Name: n.Name, Kind: n.Kind, Ephemeral: n.Ephemeral, Instance: n.Instance, Content: n.Content, Lock: n.Lock,
		ACLs: n.ACLs, Checksum: n.Checksum, Size: len(n.Contents), Children: n.Children, ACL: n.ACL, ModifiedUnix: n.ModifiedUnix,
	}
}

// In returns the metadata with the path that the node has in the cell of that
// name.
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
