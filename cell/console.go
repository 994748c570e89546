package cell

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/console"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/hashicorp/raft"
)

func newConsole(c *credentials) *console.Console {
	if !c.cfg.Console {
		return nil
	}
	return console.New(console.Config{
		Cell: c.cfg.Cell, Replica: c.cfg.ID, Version: Version(), Door: consoleDoor{c}, Logger: c.log, Clock: c.cfg.Clock, Wall: c.cfg.Wall,
		Encrypted: c.clients != nil, Tokens: c.tokens != nil,
	})
}

// consoleDoor connects the console to the cell as a client, over connections that the replica makes. It
// implements console.Door.
type consoleDoor struct{ *credentials }

func (d consoleDoor) Servers() []string {
	list := []string{d.advertised()}
	for _, s := range d.servers() {
		if address := d.clientAddress(string(s.ID)); address != "" && address != list[0] {
			list = append(list, address)
		}
	}
	return list
}

func (d consoleDoor) Dial(ctx context.Context, who console.Guest, address string) (net.Conn, error) {
	id, at := d.cfg.ID, d.cfg.ClientListener.Addr().String() // clients may reach this replica at another one
	if address != d.advertised() {
		members := d.servers()
		i := slices.IndexFunc(members, func(s raft.Server) bool { return d.clientAddress(string(s.ID)) == address })
		if i < 0 {
			return nil, api.Errorf(api.Unavailable, "no replica of the cell is at %s", address)
		}
		id, at = string(members[i].ID), address
	}
	conn, err := d.cfg.Dial(at, dialTimeout)
	if err != nil || d.peers == nil {
		return conn, err
	}
	var proof certs.Proof
	config := d.peers.Client("", func(theirs *x509.Certificate, p certs.Proof) error {
		proof = p
		return peer.IsReplica(theirs, certs.Replica{Cell: d.cfg.Cell, ID: id})
	})
	config.NextProtos = []string{wire.GuestProtocol}
	encrypted := tls.Client(conn, config)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err = encrypted.HandshakeContext(ctx); err == nil {
		//mutant: err = wire.Guest{Address: who.Address, Principal: "ops"}.Introduce(encrypted) //by TestConsoleRights of ./cell
		err = wire.Guest{Address: who.Address, Principal: who.Principal}.Introduce(encrypted)
	}
	if err != nil {
		_ = conn.Close() // err is the error to report
		return nil, fmt.Errorf("speak for somebody at replica %s: %w", id, err)
	}
	return countedConn{encrypted, func() bool { return d.peers.Counts(proof) && (id == d.cfg.ID || d.isConfigured(id)) }}, nil
}

// countedConn is a connection to a replica. Nothing is sent over it once the replica has left the cell, or its certificate
// does not count any more.
type countedConn struct {
	net.Conn
	counts func() bool
}

func (c countedConn) Write(p []byte) (int, error) {
	//mutant: if false { //by TestSpeakers of ./cell
	if !c.counts() {
		_ = c.Close() // the error is the one to report
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// dialTimeout is the timeout for reaching a replica for a visitor, and for the handshake with it.
const dialTimeout = time.Second

func (d consoleDoor) Verify(ctx context.Context, token, from string) (principal string, counts func() bool, err error) {
	if d.tokens == nil {
		return "", nil, api.Errorf(api.Unauthenticated, "this cell takes no tokens")
	}
	principal, counts, err = clientTokens{d.tokens}.Verify(ctx, token)
	if err == nil {
		err = wire.CheckPrincipal(principal)
	}
	if err != nil && d.audit != nil {
		d.audit.Refused(audit.Record{Call: "Authenticate", From: from, Code: api.Unauthenticated.String(), Message: "at the console: " + err.Error()})
	}
	return principal, counts, err
}

func (d consoleDoor) Identify(state *tls.ConnectionState) (principal string, counts func() bool, err error) {
	if d.clients == nil || state == nil {
		return "", nil, api.Errorf(api.Unauthenticated, "no certificate was shown")
	}
	principal, counts, err = d.clients.Identify(state.PeerCertificates)
	if err == nil {
		err = wire.CheckPrincipal(principal)
	}
	return principal, counts, err
}
