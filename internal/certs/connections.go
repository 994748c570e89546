package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
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

// protocols are offered and taken (ALPN). What is spoken, the first bytes say; "h2" is for
// clients of gRPC, which insist.
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
