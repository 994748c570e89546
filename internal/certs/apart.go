package certs

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
)

// errShared is why authorities are not taken over.
var errShared = errors.New("a client with a certificate of it could pose as a replica")

// KeepApart has two stores have no authority in common, now and whenever their files are read again: what would bring one about
// is not taken over. It fails if there is one already. It is called before anything else uses the stores.
//
// Authorities are compared by their keys, and by who has signed whom: an authority that was renewed has another certificate, and the same
// key. An authority of one store may also be signed by one of the other with certificates between them that are in no file. So, too, no
// path counts that leads through a key of the other store's authorities.
func KeepApart(a, b *Store) error {
	a.other, b.other, b.mu = b, a, a.mu
	return a.checkApart(a.held.Load().trust)
}

// keyOf returns the public key of a certificate, in DER with its algorithm.
func keyOf(c *x509.Certificate) string { return string(c.RawSubjectPublicKeyInfo) }

// checkApart checks authorities that are to be those of the store. s.mu is held, so that the other's do not change meanwhile.
func (s *Store) checkApart(t trust) error {
	if s.other == nil {
		return nil
	}
	for _, ours := range t.roots {
		for _, theirs := range s.other.held.Load().roots {
			switch {
			case keyOf(ours) == keyOf(theirs):
				return fmt.Errorf("the files %s and %s have an authority in common, the key of %s: %w", s.files.CA, s.other.files.CA, subject(ours), errShared)
			case hasSigned(theirs, ours):
				return s.signedByOther(s.files.CA, ours, s.other.files.CA, theirs)
			case hasSigned(ours, theirs):
				return s.signedByOther(s.other.files.CA, theirs, s.files.CA, ours)
			}
		}
	}
	return nil
}

func (s *Store) signedByOther(file string, c *x509.Certificate, issuers string, issuer *x509.Certificate) error {
	return fmt.Errorf("the authority of %s in %s is signed by that of %s in %s, so each of its certificates is one of both: %w", subject(c), file, subject(issuer), issuers, errShared)
}

// hasSigned reports whether an authority has signed a certificate. Only one that the certificate names as its issuer is looked at, as in
// verify.
func hasSigned(issuer, c *x509.Certificate) bool {
	return bytes.Equal(issuer.RawSubject, c.RawIssuer) && c.CheckSignatureFrom(issuer) == nil
}

// checkPath returns why a path from a certificate to an authority does not count all the same: it leads through an authority of the
// other store.
func (s *Store) checkPath(p Proof) error {
	if s.other == nil {
		return nil
	}
	theirs := s.other.held.Load().keys
	for _, c := range p.path {
		if _, shared := theirs[keyOf(c)]; shared {
			return fmt.Errorf("the certificate of %s does not count: %s, on the path to its authority, is an authority of the other port", subject(p.path[0]), subject(c))
		}
	}
	return nil
}
