package certs

import (
	"bytes"
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

// Files are those of one side of a connection, all in PEM. What is empty is not there.
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

	mu   sync.Mutex // guards what follows; held while files are read, so that of two that read the later one stays
	read stamp      // of the files, when they were last read
}

// material is what was read, and is not changed any more.
type material struct {
	own *tls.Certificate // nil if there is none
	trust
}

// stamp tells whether files are others than they were.
type stamp [4]fileStamp

type fileStamp struct {
	size     int64
	modified time.Time
}

// Open reads the files.
func Open(files Files) (*Store, error) {
	s := &Store{files: files, now: wallNow}
	_, err := s.Refresh()
	return s, err
}

// Refresh reads the files again if one of them has changed, and reports whether anything
// did. If they cannot be read, or do not belong together, what was read before stays in
// use.
func (s *Store) Refresh() (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.files.stamp()
	if err != nil || now == s.read {
		return false, err
	}
	m, err := s.files.load()
	if err != nil {
		return false, err
	}
	s.read = now
	s.held.Store(&m)
	return true, nil
}

// Check returns why a chain of certificates does not count any more for that use: as after a
// file was read again, or when one has expired.
func (s *Store) Check(chain []*x509.Certificate, use x509.ExtKeyUsage) error {
	return s.held.Load().verify(chain, use, "", s.now())
}

// Own returns the own certificate; nil if there is none.
func (s *Store) Own() *x509.Certificate {
	if own := s.held.Load().own; own != nil {
		return own.Leaf
	}
	return nil
}

// Ends returns when the own certificate ends, and a sentence about that if it is soon. Both are zero if there is
// no certificate.
func (s *Store) Ends() (end time.Time, warning string) {
	own := s.Own()
	if own == nil {
		return end, ""
	}
	end = own.NotAfter
	switch left := end.Sub(s.now()); {
	case left <= 0:
		warning = fmt.Sprintf("the certificate in %s has expired, on %s: put a new one in its place", s.files.Cert, end.UTC().Format(time.DateOnly))
	case left < min(soon, end.Sub(own.NotBefore)/3):
		warning = fmt.Sprintf("the certificate in %s expires on %s: put a new one in its place", s.files.Cert, end.UTC().Format(time.DateOnly))
	}
	return end, warning
}

// soon is how long before its end Ends warns of a certificate; of one that lasts days or hours, in the last third.
const soon = 14 * 24 * time.Hour

// Counts reports whether a chain that was accepted when its connection was made counts still, but for its
// time, which may be over.
func (s *Store) Counts(chain []*x509.Certificate) bool {
	if len(chain) == 0 {
		return false
	}
	when := s.now()
	if end := chain[0].NotAfter; when.After(end) {
		when = end
	}
	return s.held.Load().verify(chain, x509.ExtKeyUsageAny, "", when) == nil
}

// Expired reports whether the time of the first certificate of a chain is over, which costs less to find
// out than Check does.
func (s *Store) Expired(chain []*x509.Certificate) bool {
	return len(chain) > 0 && s.now().After(chain[0].NotAfter)
}

// Principal returns the principal that the first certificate of a chain names.
func (s *Store) Principal(chain []*x509.Certificate) (string, error) {
	if len(chain) == 0 {
		return "", errNoCertificate
	}
	return PrincipalOf(chain[0])
}

func (f Files) list() []string { return []string{f.Cert, f.Key, f.CA, f.CRL} }

func (f Files) stamp() (s stamp, err error) {
	for i, name := range f.list() {
		if name == "" {
			continue
		}
		about, err := os.Stat(name)
		if err != nil {
			return s, err
		}
		s[i] = fileStamp{size: about.Size(), modified: about.ModTime()}
	}
	return s, nil
}

// load reads the files. The error names the one that is wrong.
func (f Files) load() (material, error) {
	m := material{trust: trust{roots: x509.NewCertPool(), revoked: map[revocation]struct{}{}}}
	var faults []error
	if f.Cert != "" || f.Key != "" {
		own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			faults = append(faults, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err))
		}
		m.own = &own
	}
	if f.CA != "" {
		faults = append(faults, eachBlock(f.CA, "CERTIFICATE", func(der []byte) error {
			c, err := x509.ParseCertificate(der)
			if err == nil && !c.IsCA {
				err = fmt.Errorf("the certificate of %s is not that of an authority", subject(c))
			}
			if err == nil {
				m.roots.AddCert(c)
				m.authorities = append(m.authorities, c)
			}
			return err
		}))
	}
	if f.CRL != "" {
		faults = append(faults, eachBlock(f.CRL, "X509 CRL", m.addList))
	}
	return m, errors.Join(faults...)
}

// maxFile bounds the files, in bytes: a revocation list of a large authority has some.
const maxFile = 64 << 20

// eachBlock calls add with the contents of each block of that type; there must be one.
func eachBlock(name, kind string, add func(der []byte) error) error {
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
	found := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != kind {
			continue
		}
		if err := add(bytes.Clone(block.Bytes)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		found++
	}
	if found == 0 {
		return fmt.Errorf("%s has no block %q of PEM", name, kind)
	}
	return nil
}

// protocols are offered and taken (ALPN). What is spoken, the first bytes say; "h2" is for
// clients of gRPC, which insist.
func protocols() []string { return []string{"h2"} }

// Server returns the configuration of the end that was dialled. It asks for a certificate and
// takes any, and none: who calls is found by Check.
func (s *Store) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols(), ClientAuth: tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.held.Load().own, nil },
		// A session that is resumed would be one of the past: what it was verified by may have been taken back.
		SessionTicketsDisabled: true,
	}
}

// Client returns the configuration of the end that dials. The certificate of the other end must
// be for that host, or, if host is empty, only be one of a server. accept says what else is
// wrong with it; it may be nil.
func (s *Store) Client(host string, accept func(*x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols(), ServerName: host,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if own := s.held.Load().own; own != nil {
				return own, nil
			}
			return &tls.Certificate{}, nil
		},
		// The files may have changed since: VerifyConnection verifies, by those that were read last.
		InsecureSkipVerify: true, //nolint:gosec // see there
		VerifyConnection: func(state tls.ConnectionState) error {
			chain := slices.Clone(state.PeerCertificates)
			if err := s.held.Load().verify(chain, x509.ExtKeyUsageServerAuth, host, s.now()); err != nil || accept == nil {
				return err
			}
			return accept(chain[0])
		},
	}
}
