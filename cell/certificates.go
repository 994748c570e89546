package cell

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
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

// openCertificates reads the certificates of both ports, and checks that they name this replica.
func (r *Replica) openCertificates() (err error) {
	r.clientCerts, r.peerCerts, err = r.cfg.readCertificates()
	return err
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

// warning returns what needs an operator's attention soon: disk, certificates, token keys, differing replicas,
// in this order. Everybody may read /readyz, so it names configuration keys; the log names the files.
func (r *Replica) warning() string {
	note := r.space.Note()
	if r.clientCerts != nil { // or neither
		note = cmp.Or(note, r.clientCerts.Warning(clientTLS), r.peerCerts.Warning(peerTLS))
	}
	if r.tokens != nil && note == "" && r.tokens.Err() != nil {
		note = "the keys of tokens (token-keys) cannot be read; the log says why"
	}
	if differ := r.comparison.Differing(); len(differ) > 0 && note == "" {
		note = "replicas that differ from this one, or did before they stopped: " + strings.Join(differ, ", ") + "; see the logs, and chubbyctl cell status"
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

func (r *Replica) listener() wire.Listener {
	l := wire.Listener{Listener: r.cfg.ClientListener, Clock: r.cfg.Clock, Connections: r.conns}
	if r.clientCerts != nil {
		l.Certificates = clientCertificates{r.clientCerts, r}
	}
	if r.tokens != nil {
		l.Tokens = clientTokens{r.tokens}
	}
	return l
}

// clientCertificates are those of the client port, at which the cell's members may speak for guests.
type clientCertificates struct {
	*certs.Store
	r *Replica
}

func (c clientCertificates) Accept(conn net.Conn) *tls.Conn {
	return c.AcceptEither(conn, c.r.peerCerts, wire.GuestProtocol)
}

func (c clientCertificates) Speaker(chain []*x509.Certificate) (id string, counts func() bool, err error) {
	proof, err := c.r.peerCerts.Check(chain, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return "", nil, err
	}
	is, err := certs.ReplicaOf(chain[0])
	isMember := func() bool { // this replica speaks to itself also before it has joined
		return is.Cell == c.r.cfg.Cell && (is.ID == c.r.cfg.ID || c.r.isConfigured(is.ID))
	}
	//mutant: if err == nil && false { //by TestSpeakers of ./cell
	if err == nil && !isMember() {
		err = api.Errorf(api.Unauthenticated, "%v is no member of this cell, and speaks for nobody", is.URI())
	}
	return is.ID, func() bool { return c.r.peerCerts.Counts(proof) && isMember() }, err
}

// watchCertificates reads changed certificate files again, until ctx ends. It closes connections with invalid
// certificates or tokens.
func (r *Replica) watchCertificates(ctx context.Context) {
	if r.clientCerts == nil {
		return
	}
	said, failed := map[string]string{}, map[string]string{} // by port
	warn := func() {
		r.warnOfEnds(said, clientTLS, r.clientCerts, r.cfg.ClientTLS)
		r.warnOfEnds(said, peerTLS, r.peerCerts, r.cfg.PeerTLS)
	}
	warn()
	for range ticks(ctx, certificatesEvery) {
		r.refresh(failed, clientTLS, r.clientCerts)
		r.refresh(failed, peerTLS, r.peerCerts) // first: they speak for guests at the port for clients
		if n := r.conns.Recheck(); n > 0 {
			r.log.Warn("closed connections of clients whose certificates or tokens do not count any more", "connections", n)
		}
		if n := r.port.Recheck(); n > 0 {
			r.log.Warn("closed connections of replicas whose certificates do not count any more", "connections", n)
		}
		warn()
	}
}

// warnOfEnds logs the warning about one port's certificates, with their files, if it is a new one.
func (r *Replica) warnOfEnds(said map[string]string, port string, store *certs.Store, files TLSFiles) {
	warning := store.Warning(port)
	if warning != "" && warning != said[port] {
		//mutant: r.log.Debug(warning, "event", "certificate_due", "file", files.Cert, "ca", files.CA, "crl", files.CRL) //by TestWarningsNameNoFiles of ./cell
		r.log.Warn(warning, "event", "certificate_due", "file", files.Cert, "ca", files.CA, "crl", files.CRL)
	}
	said[port] = warning
}

// refresh reads the files of one port again if they have changed. It logs a fault only if it differs from the
// last one, in failed.
func (r *Replica) refresh(failed map[string]string, port string, store *certs.Store) {
	changed, err := store.Refresh()
	was := failed[port]
	if failed[port] = ""; err != nil {
		failed[port] = err.Error()
	}
	switch {
	case err != nil && err.Error() == was:
	case err != nil:
		r.log.Error("the files of certificates cannot be taken over; what was read before stays in use", "event", "certificate_unread", "port", port, "error", err)
	case changed:
		r.log.Info("read the files of certificates again", "port", port)
	}
}

func (r *Replica) openTokens(ctx context.Context) error {
	if r.cfg.Tokens == (TokenConfig{}) {
		return nil
	}
	var err error
	if r.tokens, err = tokens.Open(ctx, r.cfg.Tokens); err != nil {
		return &api.Error{Code: api.InvalidArgument, Op: "start", Message: err.Error(), Err: err}
	}
	return nil
}

type clientTokens struct{ *tokens.Store }

func (t clientTokens) Verify(ctx context.Context, raw string) (string, func() bool, error) {
	token, err := t.Store.Verify(ctx, raw)
	//mutant: return token.Principal, func() bool { return true }, err //by TestTokensEnd of ./cell
	return token.Principal, func() bool { return t.Counts(token) }, err
}

// watchTokens reads the keys again regularly, and when a token names an unknown key, until ctx ends.
func (r *Replica) watchTokens(ctx context.Context) {
	if r.tokens == nil {
		return
	}
	every := time.NewTicker(certificatesEvery)
	defer every.Stop()
	for failed := false; ctx.Err() == nil; {
		changed, err := r.tokens.Refresh(ctx)
		switch {
		case err != nil && !failed:
			r.log.Error("the keys of tokens cannot be read; those that were read before stay in use, and it is tried again", "event", "token_keys_unread", "error", err)
		case changed:
			r.log.Info("read the keys of tokens", "file", r.cfg.Tokens.Keys)
		}
		failed = err != nil
		select {
		case <-every.C:
		case <-r.tokens.Wanted():
		case <-ctx.Done():
		}
	}
}
