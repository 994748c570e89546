package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Accept encrypts a connection that was dialled by the other end. The handshake reads a bounded number of bytes: what
// the other end shows is kept as long as the connection is.
func (s *Store) Accept(conn net.Conn) *tls.Conn { return s.accept(conn, protocols(), nil, "") }

// AcceptEither is Accept, and with the certificates of another store if the other end asks for that by a protocol (ALPN).
func (s *Store) AcceptEither(conn net.Conn, other *Store, protocol string) *tls.Conn {
	return s.accept(conn, protocols(), other, protocol)
}

// AcceptHTTP is Accept for a connection of which a browser at the other end is to speak HTTP/1.1.
func (s *Store) AcceptHTTP(conn net.Conn) *tls.Conn {
	return s.accept(conn, []string{"http/1.1"}, nil, "")
}

func (s *Store) accept(conn net.Conn, protocols []string, other *Store, protocol string) *tls.Conn {
	l := &limited{Conn: conn, left: maxHandshake}
	config := s.server()
	config.NextProtos = protocols
	config.VerifyConnection = func(state tls.ConnectionState) error {
		l.left = -1                                // what follows is the end of the handshake, and what is said
		return checkEffort(state.PeerCertificates) // now, before a signature is checked, and so that they do not stay in memory
	}
	if other != nil {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if !slices.Contains(hello.SupportedProtos, protocol) {
				return config, nil
			}
			theirs := other.server()
			theirs.NextProtos, theirs.VerifyConnection = []string{protocol}, config.VerifyConnection
			return theirs, nil
		}
	}
	return tls.Server(l, config)
}

// maxHandshake bounds what is read in a handshake, in bytes: a chain of RSA keys has 10 KB.
const maxHandshake = 16 << 10

// limited is a connection of which so many bytes may be read. Its reads are those of one handshake at a
// time, which tls.Conn sees to.
type limited struct {
	net.Conn
	left int // -1: any number
}

// Why a handshake is broken off.
var (
	errLongHandshake = errors.New("the handshake is longer than 16 KiB: too many certificates, or too long ones, were shown")
	errLongChain     = errors.New("too many certificates were shown")
)

// Read implements net.Conn.
func (l *limited) Read(p []byte) (int, error) {
	switch {
	case l.left < 0:
		return l.Conn.Read(p)
	case l.left == 0:
		return 0, errLongHandshake
	case len(p) > l.left:
		p = p[:l.left]
	}
	n, err := l.Conn.Read(p)
	l.left -= n
	return n, err
}

// SetLinger sets what happens to unsent data when the connection is closed, if it can be set.
func (l *limited) SetLinger(seconds int) error {
	if tcp, ok := l.Conn.(interface{ SetLinger(seconds int) error }); ok {
		return tcp.SetLinger(seconds)
	}
	return nil
}

// protocols are offered and taken (ALPN). The first bytes say what is spoken; "h2" is for clients of gRPC, which
// insist.
func protocols() []string { return []string{"h2"} }

// server returns the configuration of the end that was dialled. It asks for a certificate and
// takes any, and none: who calls is found by Check.
func (s *Store) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols(), ClientAuth: tls.RequestClientCert,
		CurvePreferences: []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256, tls.CurveP384}, // not P-521: see maxCurveBits
		GetCertificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.held.Load().own, nil },
		// A session that is resumed would be one of the past: what it was verified by may have been taken back.
		SessionTicketsDisabled: true,
	}
}

// Client returns the configuration of the end that dials. The certificate of the other end must
// be for that host, or, if host is empty, only be one of a server. accept says what else is
// wrong with it; it may be nil.
func (s *Store) Client(host string, accept func(*x509.Certificate, Proof) error) *tls.Config {
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
			proof, err := s.verify(state.PeerCertificates, x509.ExtKeyUsageServerAuth, host)
			if err != nil || accept == nil {
				return err
			}
			return accept(state.PeerCertificates[0], proof)
		},
	}
}

// replicaScheme is the scheme of the URI in a replica's certificate:
// chubby://CELL/replica/ID.
const replicaScheme = "chubby"

// Replica is a replica as its certificate names it.
type Replica struct{ Cell, ID string }

// URI returns the URI that the certificate of a replica has.
func (r Replica) URI() *url.URL {
	return &url.URL{Scheme: replicaScheme, Host: r.Cell, Path: "/replica/" + r.ID}
}

// ReplicaOf returns the replica that a certificate names.
func ReplicaOf(cert *x509.Certificate) (Replica, error) {
	uris, err := urisOf(cert)
	if err != nil {
		return Replica{}, err
	}
	var found []Replica
	for _, text := range uris {
		rest, ok := strings.CutPrefix(text, replicaScheme+"://")
		cell, id, named := strings.Cut(rest, "/replica/")
		if r := (Replica{Cell: cell, ID: id}); ok && named && id != "" && r.URI().String() == text {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		return Replica{}, fmt.Errorf("the certificate of %s names %d replicas: one URI like %v is wanted (chubbyd certs replica)", subject(cert), len(found), Replica{Cell: "CELL", ID: "ID"}.URI())
	}
	return found[0], nil
}

// How SPIFFE IDs and names of hosts are written. Other names are refused: two that differ must not be read as
// one, nor one of a kind as one of the other.
var (
	spiffeID = regexp.MustCompile(`^spiffe://[a-z0-9._-]{1,255}(/[A-Za-z0-9._-]+)+$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*)(\.[A-Za-z0-9_-]+)*$`)
)

// PrincipalOf returns the principal that a client's certificate names: its SPIFFE ID, the URI
// spiffe://DOMAIN/PATH; or, if it has none, its DNS name, of which it has one. A certificate
// that names a replica names no principal.
func PrincipalOf(cert *x509.Certificate) (string, error) {
	uris, err := urisOf(cert)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, text := range uris {
		scheme, _, _ := strings.Cut(text, ":")
		switch strings.ToLower(scheme) {
		//mutant: case "none": //by TestNames of ./internal/certs
		case replicaScheme:
			return "", fmt.Errorf("the certificate of %s is that of a replica, and not of a client", subject(cert))
		case "spiffe":
			if !spiffeID.MatchString(text) {
				return "", fmt.Errorf("the certificate of %s has the URI %q, which is no SPIFFE ID like spiffe://example.org/billing", subject(cert), clip(text))
			}
			ids = append(ids, text)
		}
	}
	switch {
	case len(ids) == 1:
		return ids[0], nil
	case len(ids) > 1:
		return "", fmt.Errorf("the certificate of %s has %d SPIFFE IDs: one is wanted", subject(cert), len(ids))
	case len(cert.DNSNames) != 1:
		return "", fmt.Errorf("the certificate of %s has no SPIFFE ID and %d DNS names: one of either is wanted to name a principal", subject(cert), len(cert.DNSNames))
	case !hostName.MatchString(cert.DNSNames[0]):
		return "", fmt.Errorf("the certificate of %s has the DNS name %q, which cannot be a principal: want letters, digits, '-', '_' and '.'", subject(cert), clip(cert.DNSNames[0]))
	}
	return cert.DNSNames[0], nil
}

// urisOf returns the URIs of a certificate as they are written there: package x509 has parsed them, and
// different texts are equal then.
func urisOf(cert *x509.Certificate) (uris []string, err error) {
	alternatives := asn1.ObjectIdentifier{2, 5, 29, 17}
	const uri = 6 // the tag of a uniformResourceIdentifier (RFC 5280 §4.2.1.6)
	for _, e := range cert.Extensions {
		if !e.Id.Equal(alternatives) {
			continue
		}
		var names asn1.RawValue
		if _, err := asn1.Unmarshal(e.Value, &names); err != nil {
			return nil, err
		}
		for rest := names.Bytes; len(rest) > 0; {
			var name asn1.RawValue
			if rest, err = asn1.Unmarshal(rest, &name); err != nil {
				return nil, err
			}
			if name.Class == asn1.ClassContextSpecific && name.Tag == uri {
				uris = append(uris, string(name.Bytes))
			}
		}
	}
	if len(uris) != len(cert.URIs) {
		return nil, errors.New("the certificate's URIs cannot be read")
	}
	return uris, nil
}

// subject names a certificate for people.
func subject(cert *x509.Certificate) string {
	serial := clip(fmt.Sprintf("%x", cert.SerialNumber))
	if text := cert.Subject.String(); text != "" {
		return fmt.Sprintf("%q (serial number %s)", clip(text), serial)
	}
	return "serial number " + serial
}
