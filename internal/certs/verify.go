package certs

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// trust is whose certificates count: those that an authority has signed, and nobody has
// revoked.
type trust struct {
	roots       *x509.CertPool
	authorities []*x509.Certificate // those in roots
	revoked     map[revocation]struct{}
}

// revocation is one certificate that was revoked.
type revocation struct {
	issuer string // its name, in DER
	serial string
}

// errNoCertificate says that the other end has shown nothing.
var errNoCertificate = errors.New("no certificate was shown")

// verify checks a chain, the other end's own certificate first, for a use at a time. host is
// the name that the certificate must be for, if it is not empty.
func (t trust) verify(chain []*x509.Certificate, use x509.ExtKeyUsage, host string, now time.Time) error {
	if len(chain) == 0 {
		return errNoCertificate
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	paths, err := chain[0].Verify(x509.VerifyOptions{
		Roots: t.roots, Intermediates: between, DNSName: host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use},
	})
	if err != nil {
		return fmt.Errorf("the certificate of %s does not count: %w", subject(chain[0]), err)
	}
	for _, path := range paths {
		if err = t.checkRevoked(path); err == nil {
			return nil
		}
	}
	return err
}

// checkRevoked returns why a path from a certificate to a root does not count any more.
func (t trust) checkRevoked(path []*x509.Certificate) error {
	for i, c := range path[:len(path)-1] { // a root is taken back by taking it out of its file
		if _, ok := t.revoked[revocation{string(path[i+1].RawSubject), c.SerialNumber.String()}]; ok {
			return fmt.Errorf("the certificate of %s was revoked", subject(c))
		}
	}
	return nil
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
		for _, e := range list.RevokedCertificateEntries {
			t.revoked[revocation{string(list.RawIssuer), e.SerialNumber.String()}] = struct{}{}
		}
		return nil
	}
	return fmt.Errorf("the list of %q is signed by none of the certificate authorities", list.Issuer)
}
