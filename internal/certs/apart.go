package certs

import (
	"errors"
	"fmt"
)

// errShared is why authorities are not taken over.
var errShared = errors.New("a client with a certificate of it could pose as a replica")

// KeepApart has two stores have no authority in common, now and whenever their files are read again: what would bring one about
// is not taken over. It fails if there is one already. It is called before anything else uses the stores.
func KeepApart(a, b *Store) error {
	a.other, b.other, b.mu = b, a, a.mu
	return a.checkApart(a.held.Load().trust)
}

// checkApart checks authorities that are to be those of the store. s.mu is held, so that the other's do not change meanwhile.
func (s *Store) checkApart(t trust) error {
	if s.other == nil {
		return nil
	}
	theirs := s.other.held.Load().counting
	for raw := range t.counting {
		if _, shared := theirs[raw]; shared {
			return fmt.Errorf("the files %s and %s have an authority in common: %w", s.files.CA, s.other.files.CA, errShared)
		}
	}
	return nil
}
