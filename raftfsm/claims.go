package raftfsm

import (
	"errors"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// Claim is one request for a lock: Acquire's or TryAcquire's. A grant is its stored answer, so only the first
// command with it has an effect.
type Claim struct {
	Mutation      session.Mutation `cbor:"1,keyasint"`
	Handle        api.HandleID     `cbor:"2,keyasint"`
	Mode          api.LockMode     `cbor:"3,keyasint"`
	Delay         time.Duration    `cbor:"4,keyasint,omitempty"`
	Reason        string           `cbor:"5,keyasint,omitempty"`
	Try           bool             `cbor:"6,keyasint,omitempty"` // do not wait: answer at once if the lock is not free
	Preconditions []Precondition   `cbor:"7,keyasint,omitempty"`

	DeclaredOwner string `cbor:"8,keyasint,omitempty" since:"3"` // the owner on whose behalf the session asks; empty: itself
}

// By returns the handle through which the lock is asked for.
func (c *Claim) By() namespace.Owner {
	return namespace.Owner{Session: c.Mutation.Session, Handle: c.Handle}
}

// claim walks over a claim.
func (w *walker) claim(c *Claim) {
	f := w.open()
	w.mutation(&f, &c.Mutation)
	integer(w, &f, 2, &c.Handle, always)
	integer(w, &f, 3, &c.Mode, always)
	integer(w, &f, 4, &c.Delay, ifSet)
	text(w, &f, 5, &c.Reason, ifSet)
	boolean(w, &f, 6, &c.Try)
	w.conditions(&f, 7, &c.Preconditions)
	text(w, &f, 8, &c.DeclaredOwner, ifSet)
	w.close(&f)
}

// grant gives a lock to the claims that can have it, in order. A grant is the claim's stored answer: an
// answered claim gets no second grant, and an ended session none.
func (s *State) grant(next Succession, wall int64) []ClaimResult {
	results := make([]ClaimResult, len(next.Claims))
	for i, c := range next.Claims {
		results[i] = s.grantOne(next.Lock, c, wall)
	}
	return results
}

func (s *State) grantOne(lock namespace.Ref, c Claim, wall int64) ClaimResult {
	by := c.By()
	r := ClaimResult{Owner: by, Number: c.Mutation.Number}
	answer, done, err := s.Sessions.Begin(c.Mutation)
	switch {
	case err != nil:
		r.Answer = refused(err)
		return r
	case done:
		r.Again, r.Answer = true, s.replay(by.Session, answer)
		return r
	}
	if err = s.mayOwn(); err == nil {
		err = s.checkPreconditions(c.Preconditions)
	}
	if err != nil {
		r.Answer = refused(err)
		s.Sessions.Finish(c.Mutation, r.Answer)
		return r
	}
	holder := namespace.Holder{Owner: by, Delay: c.Delay, Reason: c.Reason, SinceUnix: wall, DeclaredOwner: c.DeclaredOwner}
	generation, err := s.Tree.Acquire(lock, holder, c.Mode, s.drawGeneration)
	if err != nil && !c.Try && s.worthWaiting(lock, by, err) {
		r.Pending, r.Answer = true, refused(err)
		return r
	}
	if err != nil {
		r.Answer = refused(err)
	} else {
		r.Answer = Answer{Generation: generation, Lock: lock, Mode: c.Mode, Handle: c.Handle}
	}
	s.Sessions.Finish(c.Mutation, r.Answer)
	return r
}

// worthWaiting reports whether a claim refused with err may be granted later. It may not if by itself holds the
// lock.
func (s *State) worthWaiting(lock namespace.Ref, by namespace.Owner, err error) bool {
	if errors.Is(err, api.LockDelayed) {
		return true
	}
	node, gone := s.Tree.Resolve(lock)
	return errors.Is(err, api.LockHeld) && gone == nil && !node.Holds(by)
}
