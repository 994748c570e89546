package peer

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/certs"
)

// encryptInbound has an inbound connection encrypted, if there are certificates. The handshake is part
// of reading the hello.
func (p *Port) encryptInbound(c *portConn) {
	if p.Certificates != nil {
		c.Conn = p.Certificates.Accept(c.Conn)
	}
}

// encryptOutbound has a connection to a replica encrypted, if there are certificates. The handshake is
// part of writing the hello, and fails if another answers than that replica.
func (p *Port) encryptOutbound(c *portConn, id string) {
	if p.Certificates == nil {
		return
	}
	c.Conn = tls.Client(c.Conn, p.Certificates.Client("", func(theirs *x509.Certificate, proof certs.Proof) error {
		c.proof.Store(&proof)
		return isReplica(theirs, certs.Replica{Cell: p.Cell, ID: id})
	}))
}

// checkCertificate returns an error if a caller's certificate does not count, or is that of another replica
// than its hello says.
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
	return isReplica(chain[0], certs.Replica{Cell: h.cell, ID: h.from})
}

// Expel closes the connections that replicas have made which have left the cell: when they connect anew, they are told.
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

func isReplica(cert *x509.Certificate, want certs.Replica) error {
	is, err := certs.ReplicaOf(cert)
	if err == nil && is != want {
		err = api.Errorf(api.Unauthenticated, "the certificate is that of %v, not of %v: see which files the replica has", is.URI(), want.URI())
	}
	return err
}

// Recheck closes the connections of replicas whose certificates do not count any more, and returns how
// many those are. It is called every few seconds. Who expires is not cut off: a cell whose certificates
// all end in one night goes on until connections are made anew.
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
