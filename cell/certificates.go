package cell

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/internal/tokens"
)

// Prefixes of the configuration keys for certificates of the client and Raft ports.
const (
	clientTLS = "tls"
	peerTLS   = "peer-tls"
)

// certificatesEvery is how often the replica checks the certificate files.
const certificatesEvery = 5 * time.Second

// credentials are the certificates of both ports, and the keys of tokens.
type credentials struct {
	*member
	clients, peers *certs.Store  // nil without encryption
	tokens         *tokens.Store // nil if disabled
}

// open reads them, and checks that the certificates name this replica.
func (c *credentials) open(ctx context.Context) (err error) {
	if c.clients, c.peers, err = c.cfg.readCertificates(); err != nil || c.cfg.Tokens == (TokenConfig{}) {
		return err
	}
	if c.tokens, err = tokens.Open(ctx, c.cfg.Tokens); err != nil {
		return &api.Error{Code: api.InvalidArgument, Op: "start", Message: err.Error(), Err: err}
	}
	return nil
}

// CheckCertificates returns the fault of the certificate files, as Start does; nil if none is configured.
// errors.Is finds fs.ErrNotExist or fs.ErrPermission if a file is missing or unreadable.
func (cfg Config) CheckCertificates() error {
	_, _, err := cfg.readCertificates()
	return err
}

func (cfg Config) readCertificates() (clients, peers *certs.Store, err error) {
	if cfg.ClientTLS == (TLSFiles{}) {
		return nil, nil, nil
	}
	fault := func(err error, text string) (*certs.Store, *certs.Store, error) {
		return nil, nil, &api.Error{Code: api.InvalidArgument, Op: "read the certificates", Message: text, Err: err}
	}
	if clients, err = certs.Open(cfg.ClientTLS); err == nil {
		peers, err = certs.Open(cfg.PeerTLS)
	}
	if err != nil {
		return fault(err, err.Error())
	}
	if err := certs.KeepApart(clients, peers); err != nil {
		return fault(err, "tls-ca, peer-tls-ca: "+err.Error())
	}
	want := certs.Replica{Cell: cfg.Cell, ID: cfg.ID}
	if is, err := certs.ReplicaOf(peers.Own()); err != nil || is != want {
		return fault(err, "the certificate in "+cfg.PeerTLS.Cert+" does not name this replica: want the URI "+want.URI().String()+" in it")
	}
	return clients, peers, nil
}

// warning returns what of them needs an operator's attention soon.
func (c *credentials) warning() (note string) {
	if c.clients != nil { // or neither
		note = cmp.Or(c.clients.Warning(clientTLS), c.peers.Warning(peerTLS))
	}
	if c.tokens != nil && note == "" && c.tokens.Err() != nil {
		note = "the keys of tokens (token-keys) cannot be read; the log says why"
	}
	return note
}

// endOf returns when a port's own certificate expires, in seconds since 1970, or 0.
func endOf(store *certs.Store) float64 { return firstOf((*certs.Store).End, store) }

// firstOf returns the earliest time of the stores, in seconds since 1970, or 0.
func firstOf(when func(*certs.Store) time.Time, stores ...*certs.Store) float64 {
	var first time.Time
	for _, store := range stores {
		if store == nil { // there are no certificates
			continue
		}
		if at := when(store); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if first.IsZero() {
		return 0
	}
	return float64(first.Unix())
}

func (c *credentials) listener(conns *wire.Connections) wire.Listener {
	l := wire.Listener{Listener: c.cfg.ClientListener, Clock: c.cfg.Clock, Connections: conns}
	if c.clients != nil {
		l.Certificates = clientCertificates{c.clients, c}
	}
	if c.tokens != nil {
		l.Tokens = clientTokens{c.tokens}
	}
	return l
}

// clientCertificates are those of the client port, at which the cell's members may speak for guests.
type clientCertificates struct {
	*certs.Store
	of *credentials
}

func (c clientCertificates) Accept(conn net.Conn) *tls.Conn {
	return c.AcceptEither(conn, c.of.peers, wire.GuestProtocol)
}

func (c clientCertificates) Speaker(chain []*x509.Certificate) (id string, counts func() bool, err error) {
	proof, err := c.of.peers.Check(chain, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return "", nil, err
	}
	is, err := certs.ReplicaOf(chain[0])
	isMember := func() bool { // this replica speaks to itself also before it has joined
		return is.Cell == c.of.cfg.Cell && (is.ID == c.of.cfg.ID || c.of.isConfigured(is.ID))
	}
	//mutant: if err == nil && false { //by TestSpeakers of ./cell
	if err == nil && !isMember() {
		err = api.Errorf(api.Unauthenticated, "%v is no member of this cell, and speaks for nobody", is.URI())
	}
	return is.ID, func() bool { return c.of.peers.Counts(proof) && isMember() }, err
}

// watchCertificates reads changed certificate files again, until ctx ends. It closes connections with invalid
// certificates or tokens.
func (c *credentials) watchCertificates(ctx context.Context, conns *wire.Connections) {
	if c.clients == nil {
		return
	}
	said, failed := map[string]string{}, map[string]string{} // by port
	warn := func() {
		c.warnOfEnds(said, clientTLS, c.clients, c.cfg.ClientTLS)
		c.warnOfEnds(said, peerTLS, c.peers, c.cfg.PeerTLS)
	}
	warn()
	for range ticks(ctx, certificatesEvery) {
		c.refresh(failed, clientTLS, c.clients)
		c.refresh(failed, peerTLS, c.peers) // first: they speak for guests at the port for clients
		if n := conns.Recheck(); n > 0 {
			c.log.Warn("closed connections of clients whose certificates or tokens do not count any more", "connections", n)
		}
		if n := c.port.Recheck(); n > 0 {
			c.log.Warn("closed connections of replicas whose certificates do not count any more", "connections", n)
		}
		warn()
	}
}

// warnOfEnds logs the warning about one port's certificates, with their files, if it is a new one.
func (c *credentials) warnOfEnds(said map[string]string, port string, store *certs.Store, files TLSFiles) {
	warning := store.Warning(port)
	if warning != "" && warning != said[port] {
		//mutant: c.log.Debug(warning, "event", "certificate_due", "file", files.Cert, "ca", files.CA, "crl", files.CRL) //by TestWarningsNameNoFiles of ./cell
		c.log.Warn(warning, "event", "certificate_due", "file", files.Cert, "ca", files.CA, "crl", files.CRL)
	}
	said[port] = warning
}

// refresh reads the files of one port again if they have changed. It logs a fault only if it differs from the
// last one, in failed.
func (c *credentials) refresh(failed map[string]string, port string, store *certs.Store) {
	changed, err := store.Refresh()
	was := failed[port]
	if failed[port] = ""; err != nil {
		failed[port] = err.Error()
	}
	switch {
	case err != nil && err.Error() == was:
	case err != nil:
		c.log.Error("the files of certificates cannot be taken over; what was read before stays in use", "event", "certificate_unread", "port", port, "error", err)
	case changed:
		c.log.Info("read the files of certificates again", "port", port)
	}
}

type clientTokens struct{ *tokens.Store }

func (t clientTokens) Verify(ctx context.Context, raw string) (string, func() bool, error) {
	token, err := t.Store.Verify(ctx, raw)
	//mutant: return token.Principal, func() bool { return true }, err //by TestTokensEnd of ./cell
	return token.Principal, func() bool { return t.Counts(token) }, err
}

// watchTokens reads the keys again regularly, and when a token names an unknown key, until ctx ends.
func (c *credentials) watchTokens(ctx context.Context) {
	if c.tokens == nil {
		return
	}
	every := time.NewTicker(certificatesEvery)
	defer every.Stop()
	for failed := false; ctx.Err() == nil; {
		changed, err := c.tokens.Refresh(ctx)
		switch {
		case err != nil && !failed:
			c.log.Error("the keys of tokens cannot be read; those that were read before stay in use, and it is tried again", "event", "token_keys_unread", "error", err)
		case changed:
			c.log.Info("read the keys of tokens", "file", c.cfg.Tokens.Keys)
		}
		failed = err != nil
		select {
		case <-every.C:
		case <-c.tokens.Wanted():
		case <-ctx.Done():
		}
	}
}
