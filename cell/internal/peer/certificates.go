package peer

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/certs"
)

// encryptInbound encrypts an inbound connection, if there are certificates. The hello does the handshake.
func (p *Port) encryptInbound(c *portConn) {
	if p.Certificates != nil {
		c.Conn = p.Certificates.Accept(c.Conn)
	}
}

// encryptOutbound encrypts a connection to a replica, if there are certificates. The hello does the handshake,
// which fails if another replica answers.
func (p *Port) encryptOutbound(c *portConn, id string) {
	if p.Certificates == nil {
		return
	}
	c.Conn = tls.Client(c.Conn, p.Certificates.Client("", func(theirs *x509.Certificate, proof certs.Proof) error {
		c.proof.Store(&proof)
		return IsReplica(theirs, certs.Replica{Cell: p.Cell, ID: id})
	}))
}

// checkCertificate returns an error if a caller's certificate is invalid or does not match its hello.
func (p *Port) checkCertificate(c *portConn, h hello) error {
	encrypted, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	chain := encrypted.ConnectionState().PeerCertificates
	proof, err := p.Certificates.Check(chain, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return err
	}
	c.proof.Store(&proof)
	return IsReplica(chain[0], certs.Replica{Cell: h.cell, ID: h.from})
}

// Expel closes the connections of replicas that have left the cell. They learn why when they reconnect.
func (p *Port) Expel() {
	roster := p.Passport.me().Roster
	var gone []*portConn
	p.mu.Lock()
	for c := range p.conns {
		if c.from != "" && roster != nil && roster.HasLeft(c.from) {
			gone = append(gone, c)
		}
	}
	p.mu.Unlock()
	for _, c := range gone {
		c.abort()
	}
}

// IsReplica returns an error if a certificate does not name that replica.
func IsReplica(cert *x509.Certificate, want certs.Replica) error {
	is, err := certs.ReplicaOf(cert)
	if err == nil && is != want {
		err = api.Errorf(api.Unauthenticated, "the certificate is that of %v, not of %v: see which files the replica has", is.URI(), want.URI())
	}
	return err
}

// Recheck closes the connections of replicas whose certificates are no longer valid, and returns their number.
// It runs every few seconds. It ignores expiry: a cell whose certificates all expire goes on until it needs new
// connections.
func (p *Port) Recheck() int {
	p.mu.Lock()
	conns := make([]*portConn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	closed := 0
	for _, c := range conns {
		if proof := c.proof.Load(); proof != nil && !p.Certificates.Counts(*proof) {
			c.abort()
			closed++
		}
	}
	return closed
}
