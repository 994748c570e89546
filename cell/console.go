package cell

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/console"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/cell/internal/wire"
)

func (cfg Config) checkConsole(fault func(string, ...any)) {
	if !cfg.Console {
		return
	}
	where := cfg.listenAddresses().HTTP
	switch {
	case where == "" && cfg.HTTPListener == nil:
		fault("console: this replica has no http port, where the console would be")
	case cfg.ClientTLS == (TLSFiles{}) && cfg.HTTPListener == nil && !onLoopback(where):
		fault("console: without certificates it is for this machine alone, and the http port listens on %s: let it listen on 127.0.0.1 (listen), or give the cell certificates", where)
	}
}

func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

func newConsole(r *Replica) *console.Console {
	if !r.cfg.Console {
		return nil
	}
	return console.New(console.Config{
		Cell: r.cfg.Cell, Replica: r.cfg.ID, Version: Version(), Door: consoleDoor{r}, Logger: r.log, Clock: r.cfg.Clock, Wall: r.cfg.Wall,
		Encrypted: r.clientCerts != nil, Tokens: r.tokens != nil,
	})
}

// consoleDoor connects the console to the cell as a client, over connections that the replica makes. It
// implements console.Door.
type consoleDoor struct{ r *Replica }

func (d consoleDoor) Servers() []string {
	list := []string{d.r.advertised()}
	for _, s := range d.r.servers() {
		if address := d.r.clientAddress(string(s.ID)); address != "" && address != list[0] {
			list = append(list, address)
		}
	}
	return list
}

func (d consoleDoor) Dial(_ context.Context, who console.Guest, address string) (net.Conn, error) {
	if address == d.r.advertised() {
		mine, theirs := net.Pipe()
		//mutant: if err := d.r.introduce(theirs, wire.Guest{Address: who.Address, Principal: "ops", Counts: who.Counts}); err != nil { //by TestConsoleRights of ./cell
		if err := d.r.introduce(theirs, wire.Guest{Address: who.Address, Principal: who.Principal, Counts: who.Counts}); err != nil {
			_ = mine.Close() // the other end is closed
			return nil, err
		}
		return mine, nil
	}
	for _, s := range d.r.servers() {
		id := string(s.ID)
		if d.r.clientAddress(id) != address {
			continue
		}
		return d.r.port.Visit(id, string(s.Address), peer.Guest{Principal: who.Principal, Address: who.Address.String()}, visitTimeout)
	}
	return nil, api.Errorf(api.Unavailable, "no replica of the cell is at %s", address)
}

// visitTimeout is the timeout for reaching another replica for a guest.
const visitTimeout = time.Second

func (d consoleDoor) Verify(ctx context.Context, token, from string) (principal string, counts func() bool, err error) {
	if d.r.tokens == nil {
		return "", nil, api.Errorf(api.Unauthenticated, "this cell takes no tokens")
	}
	principal, counts, err = clientTokens{d.r.tokens}.Verify(ctx, token)
	if err == nil {
		err = wire.CheckPrincipal(principal)
	}
	if err != nil && d.r.audit != nil {
		d.r.audit.Refused(audit.Record{Call: "Authenticate", From: from, Code: api.Unauthenticated.String(), Message: "at the console: " + err.Error()})
	}
	return principal, counts, err
}

func (d consoleDoor) Identify(state *tls.ConnectionState) (principal string, counts func() bool, err error) {
	if d.r.clientCerts == nil || state == nil {
		return "", nil, api.Errorf(api.Unauthenticated, "no certificate was shown")
	}
	principal, counts, err = d.r.clientCerts.Identify(state.PeerCertificates)
	if err == nil {
		err = wire.CheckPrincipal(principal)
	}
	return principal, counts, err
}

func (r *Replica) introduce(conn net.Conn, who wire.Guest) error {
	guests := r.guests.Load()
	if guests == nil {
		_ = conn.Close() // nothing was sent over it
		return api.Errorf(api.Unavailable, "the replica does not serve yet")
	}
	return guests.Introduce(conn, who)
}

func (r *Replica) takeGuest(conn net.Conn, who peer.Guest) {
	if err := r.introduce(conn, wire.Guest{Address: guestAddress(cmp.Or(who.Address, "unknown")), Principal: who.Principal}); err != nil {
		r.log.Warn("refused a connection for a guest", "from", conn.RemoteAddr(), "guest", who.Address, "error", err)
	}
}

type guestAddress string

func (guestAddress) Network() string { return "tcp" }

func (a guestAddress) String() string { return string(a) }
