package certs

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Files are those of one side of a connection, all in PEM. An empty name stands for no file.
type Files struct {
	Cert string // the own certificate, with those between it and its authority after it
	Key  string // its private key
	CA   string // the authorities of the other side
	CRL  string // which of their certificates were revoked: one list or more, signed by them
}

// Store is what the files hold. It is safe for concurrent use.
type Store struct {
	files Files
	now   func() time.Time

	held atomic.Pointer[material]

	mu         *sync.Mutex // guards what follows; held while files are read, so that of two that read the later one stays; see KeepApart
	own, trust reading
	other      *Store // with which no authority may be in common; nil without one
}

// material is what was read, and is not changed any more.
type material struct {
	own *tls.Certificate // nil without one
	trust
}

// reading is what is known of files that are read together.
type reading struct {
	names []string
	about []os.FileInfo // of each, when they were last read; nil before that
	err   error         // what was wrong then
}

// Open reads the files.
func Open(files Files) (*Store, error) {
	s := &Store{files: files, now: wallNow, mu: new(sync.Mutex), own: reading{names: []string{files.Cert, files.Key}}, trust: reading{names: []string{files.CA, files.CRL}}}
	s.held.Store(&material{})
	_, err := s.Refresh()
	return s, err
}

// Refresh reads the files again that have changed, and reports whether anything
// did. The own certificate with its key, and the authorities with their lists, are read apart: if one cannot be read, its two files do not
// belong together, or an authority is one of the store that this is kept apart from, what was read before stays in use, and the other is
// read.
func (s *Store) Refresh() (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *s.held.Load()
	own, ownErr := s.own.again(func() (err error) { next.own, err = s.files.loadOwn(next.own); return err })
	others, otherErr := s.trust.again(func() error {
		read, err := s.files.loadTrust(next.trust)
		if err == nil {
			err = s.checkApart(read)
		}
		if err == nil {
			next.trust = read
		}
		return err
	})
	if errors.Is(otherErr, errShared) {
		s.trust.about = nil // the other store may have another authority by the next time
	}
	if own || others {
		s.held.Store(&next)
	}
	if ownErr != nil && otherErr != nil {
		return own || others, fmt.Errorf("%w; %w", ownErr, otherErr)
	}
	return own || others, cmp.Or(ownErr, otherErr)
}

// again reads the files if one of them is another than it was, and reports whether it could.
func (r *reading) again(load func() error) (changed bool, err error) {
	about := make([]os.FileInfo, len(r.names))
	for i, name := range r.names {
		if name == "" {
			continue
		}
		if about[i], err = os.Stat(name); err != nil {
			return false, err
		}
	}
	if r.about != nil && slices.EqualFunc(about, r.about, isSame) {
		return false, r.err
	}
	r.about, r.err = about, load()
	return r.err == nil, r.err
}

// isSame reports whether a file seems to be what it was.
func isSame(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Check returns why a chain of certificates counts for a use, or the error that says why it does not.
func (s *Store) Check(chain []*x509.Certificate, use x509.ExtKeyUsage) (Proof, error) {
	return s.verify(chain, use, "")
}

// verify checks a chain for a use, and for a host if that is not empty.
func (s *Store) verify(chain []*x509.Certificate, use x509.ExtKeyUsage, host string) (Proof, error) {
	proof, err := s.held.Load().verify(chain, use, host, s.now())
	if err == nil {
		err = s.checkPath(proof)
	}
	return proof, err
}

// Counts reports whether a certificate that counted once does so still, but for its time, which may be over.
func (s *Store) Counts(p Proof) bool { return s.held.Load().counts(p) && s.checkPath(p) == nil }

// Identify returns the principal that the certificate of a client names, and whether it counts still, when that is
// asked; or why it does not count.
func (s *Store) Identify(chain []*x509.Certificate) (principal string, counts func() bool, err error) {
	proof, err := s.Check(chain, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return "", nil, err
	}
	principal, err = PrincipalOf(chain[0])
	//mutant: return principal, func() bool { return s.Counts(proof) }, err //by TestTLSCutsOffTheExpired of ./cell
	//mutant: return principal, func() bool { return !s.now().After(proof.Ends()) }, err //by TestTLSCutsOff of ./cell
	return principal, func() bool { return s.Counts(proof) && !s.now().After(proof.Ends()) }, err
}

// Own returns the own certificate; nil without one.
func (s *Store) Own() *x509.Certificate {
	if own := s.held.Load().own; own != nil {
		return own.Leaf
	}
	return nil
}

// End returns when the own certificate ends; zero without one.
func (s *Store) End() time.Time {
	if own := s.Own(); own != nil {
		return own.NotAfter
	}
	return time.Time{}
}

// AuthorityEnd returns when the last of the authorities ends, from when on no certificate counts; zero without authorities.
func (s *Store) AuthorityEnd() time.Time {
	if last := s.held.Load().lastAuthority(); last != nil {
		return last.NotAfter
	}
	return time.Time{}
}

// RevocationsDue returns when the first of the revocation lists is to be replaced; zero if none says so.
func (s *Store) RevocationsDue() time.Time {
	if overdue := s.held.Load().overdue; overdue != nil {
		return overdue.NextUpdate
	}
	return time.Time{}
}

// Warning is a sentence about what somebody should see to soon; "" if there is nothing. It names the keys of the
// configuration, which begin with that of the port ("tls"), and not their files: everybody may read it.
func (s *Store) Warning(port string) string {
	if own := s.Own(); own != nil {
		if text := endWarning("the certificate", port+"-cert", own, s.now()); text != "" {
			return text
		}
	}
	return s.held.Load().warning(port, s.now())
}

// loadOwn reads the own certificate and its key; in an error, it returns what was there.
func (f Files) loadOwn(was *tls.Certificate) (*tls.Certificate, error) {
	if f.Cert == "" && f.Key == "" {
		return nil, nil //nolint:nilnil // the side has no certificate
	}
	own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err == nil {
		err = EachBlock(f.Cert, "CERTIFICATE", func([]byte) error { return nil }) // those between are whole, too
	}
	if err == nil {
		err = checkEffort([]*x509.Certificate{own.Leaf}) // else the other end would break handshakes off, without a word
	}
	if err != nil {
		return was, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	return &own, nil
}

// loadTrust reads the authorities, and what they have revoked; in an error, which names the file that is wrong, it returns what was there.
func (f Files) loadTrust(was trust) (trust, error) {
	t := trust{keys: map[string]struct{}{}, revoked: map[revocation]struct{}{}}
	var faults []error
	if f.CA != "" {
		faults = append(faults, EachBlock(f.CA, "CERTIFICATE", func(der []byte) error {
			c, err := x509.ParseCertificate(der)
			if err == nil && !c.IsCA {
				err = fmt.Errorf("the certificate of %s is not that of an authority", subject(c))
			}
			if err == nil {
				t.authorities = append(t.authorities, c)
			}
			return err
		}))
	}
	if f.CRL != "" {
		faults = append(faults, EachBlock(f.CRL, "X509 CRL", t.addList))
	}
	if err := errors.Join(faults...); err != nil {
		return was, err
	}
	t.settle()
	return t, nil
}

// maxFile bounds the files, in bytes: a revocation list of a large authority has some.
const maxFile = 64 << 20

// EachBlock reads a file of PEM, and calls add with the contents of each block of that type; there must be one, and none that begins and is
// not whole. Package pem passes over what it cannot
// read: of a file that is just being written, or is damaged, that would be an authority, or a list of what was revoked.
func EachBlock(name, kind string, add func(der []byte) error) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return err
	case len(text) > maxFile:
		return fmt.Errorf("%s is longer than %d bytes", name, maxFile)
	}
	found, begin := 0, []byte("-----BEGIN "+kind+"-----")
	block, rest := pem.Decode(text)
	for ; block != nil; block, rest = pem.Decode(rest) {
		if block.Type != kind {
			continue
		}
		if err := add(bytes.Clone(block.Bytes)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		found++
	}
	last := rest[bytes.LastIndexByte(rest, '\n')+1:]
	switch begun := bytes.Count(text, begin); {
	case begun > found || len(last) > 0 && bytes.HasPrefix(begin, last):
		return fmt.Errorf("%s has a block %q of PEM that is not whole: it is damaged, or is being written", name, kind)
	case found == 0:
		return fmt.Errorf("%s has no block %q of PEM", name, kind)
	}
	return nil
}

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
