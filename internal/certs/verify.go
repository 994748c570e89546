package certs

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Bounds of what the other end of a connection may show: to look at it takes time, which a
// stranger must not have much of.
const (
	maxChain       = 6    // certificates
	maxRSABits     = 4096 // of their keys
	maxRSAExponent = 1<<16 + 1
)

// trust is whose certificates count: those that an authority has signed, and nobody has
// revoked.
type trust struct {
	roots       *x509.CertPool
	authorities []*x509.Certificate // those of the file
	counting    map[string]struct{} // those of them that nobody has revoked, which are in roots; by their DER
	revoked     map[revocation]struct{}
	overdue     *x509.RevocationList // the list that is to be replaced first; nil without lists
}

// revocation is one certificate that was revoked.
type revocation struct {
	issuer string // its name, in DER
	serial string
}

// Proof is why a certificate counts: the path from it to an authority.
type Proof struct {
	path []*x509.Certificate // the certificate first, the authority last
}

// Ends returns when the first certificate of the path ends.
func (p Proof) Ends() time.Time {
	end := p.path[0].NotAfter
	for _, c := range p.path[1:] {
		if c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	return end
}

// errNoCertificate says that the other end has shown nothing.
var errNoCertificate = errors.New("no certificate was shown")

// verify looks for a path from a chain, the other end's own certificate first, to an authority, for a use at a time. host is
// the name that the certificate must be for, if it is not empty.
func (t trust) verify(chain []*x509.Certificate, use x509.ExtKeyUsage, host string, now time.Time) (Proof, error) {
	if err := checkEffort(chain); err != nil {
		return Proof{}, err
	}
	if t.roots == nil { // package x509 would take those of the system
		return Proof{}, errors.New("there are no authorities")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	paths, err := chain[0].Verify(x509.VerifyOptions{
		Roots: t.roots, Intermediates: between, DNSName: host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use},
	})
	if err != nil {
		return Proof{}, fmt.Errorf("the certificate of %s does not count: %w", subject(chain[0]), clipped{err})
	}
	for _, path := range paths {
		if err = t.checkRevoked(path); err == nil {
			return Proof{path: path}, nil
		}
	}
	return Proof{}, err
}

// checkEffort refuses a chain that would take long to look at.
func checkEffort(chain []*x509.Certificate) error {
	switch {
	case len(chain) == 0:
		return errNoCertificate
	case len(chain) > maxChain:
		return fmt.Errorf("%d certificates were shown, and at most %d are allowed", len(chain), maxChain)
	}
	for _, c := range chain {
		if key, ok := c.PublicKey.(*rsa.PublicKey); ok && (key.N.BitLen() > maxRSABits || key.E > maxRSAExponent) {
			return fmt.Errorf("the certificate of %s has an RSA key of %d bits with the exponent %d: at most %d and %d are allowed", subject(c), key.N.BitLen(), key.E, maxRSABits, maxRSAExponent)
		}
	}
	return nil
}

// checkRevoked returns why a path from a certificate to an authority does not count any more.
func (t trust) checkRevoked(path []*x509.Certificate) error {
	for _, c := range path[:len(path)-1] {
		if t.isRevoked(c) {
			return fmt.Errorf("the certificate of %s was revoked", subject(c))
		}
	}
	return nil
}

func (t trust) isRevoked(c *x509.Certificate) bool {
	_, revoked := t.revoked[revocation{string(c.RawIssuer), c.SerialNumber.String()}]
	return revoked
}

// counts reports whether a path leads to an authority still, and nobody on it was revoked. It checks no
// signature again, as these do not change.
func (t trust) counts(p Proof) bool {
	_, counting := t.counting[string(p.path[len(p.path)-1].Raw)]
	return counting && t.checkRevoked(p.path) == nil
}

// addList adds the certificates of a revocation list, which one of the authorities must have signed.
func (t *trust) addList(der []byte) error {
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return err
	}
	for _, a := range t.authorities {
		if !bytes.Equal(a.RawSubject, list.RawIssuer) || list.CheckSignatureFrom(a) != nil {
			continue
		}
		issuer := string(list.RawIssuer)
		for _, e := range list.RevokedCertificateEntries {
			t.revoked[revocation{issuer, e.SerialNumber.String()}] = struct{}{}
		}
		if !list.NextUpdate.IsZero() && (t.overdue == nil || list.NextUpdate.Before(t.overdue.NextUpdate)) {
			t.overdue = list
		}
		return nil
	}
	return fmt.Errorf("the list of %q is signed by none of the certificate authorities", list.Issuer)
}

// settle leaves those authorities in place that nobody has revoked, when all lists have been read. One that has signed itself
// is taken back by taking it out of its file.
func (t *trust) settle() {
	for _, a := range t.authorities {
		if bytes.Equal(a.RawSubject, a.RawIssuer) || !t.isRevoked(a) {
			t.roots.AddCert(a)
			t.counting[string(a.Raw)] = struct{}{}
		}
	}
}

// warning is what somebody should see to soon; "" if there is nothing.
func (t trust) warning(port string, now time.Time) string {
	if t.overdue != nil && now.After(t.overdue.NextUpdate) {
		return fmt.Sprintf("a revocation list in %s-crl was to be replaced by %s: who was revoked since is let in", port, t.overdue.NextUpdate.UTC().Format(time.DateOnly))
	}
	if last := t.lastAuthority(); last != nil {
		return endWarning("the authority", port+"-ca", last, now)
	}
	return ""
}

// lastAuthority returns the authority that ends last; nil without any.
func (t trust) lastAuthority() (last *x509.Certificate) {
	for _, a := range t.authorities {
		if last == nil || a.NotAfter.After(last.NotAfter) {
			last = a
		}
	}
	return last
}

// soon is how long before its end a certificate is warned of; one that lasts days or hours, in the last third.
const soon = 14 * 24 * time.Hour

func endWarning(what, key string, c *x509.Certificate, now time.Time) string {
	on := c.NotAfter.UTC().Format(time.DateOnly)
	switch left := c.NotAfter.Sub(now); {
	case left <= 0:
		return fmt.Sprintf("%s in %s has expired, on %s: put a new one in its place", what, key, on)
	case left < min(soon, c.NotAfter.Sub(c.NotBefore)/3):
		return fmt.Sprintf("%s in %s expires on %s: put a new one in its place", what, key, on)
	}
	return ""
}

// maxText bounds what is said of a certificate, in bytes: the other end chooses what is in it.
const maxText = 200

// clipped is an error whose text is not longer than that.
type clipped struct{ error }

func (c clipped) Error() string { return clip(c.error.Error()) }

func (c clipped) Unwrap() error { return c.error }

func clip(text string) string {
	if len(text) > maxText {
		return text[:maxText] + "…"
	}
	return text
}
