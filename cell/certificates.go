package cell

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/internal/certs"
)

// What the keys of the configuration begin with that are about the certificates of the client port, and of the raft port.
const (
	clientTLS = "tls"
	peerTLS   = "peer-tls"
)

// certificatesEvery is how often the files of certificates are looked at.
const certificatesEvery = 5 * time.Second

// checkTLS finds files of certificates that are missing.
func (cfg Config) checkTLS(fault func(string, ...any)) {
	if cfg.ClientTLS == (TLSFiles{}) && cfg.PeerTLS == (TLSFiles{}) {
		return
	}
	for _, port := range []struct {
		what  string
		files TLSFiles
	}{{clientTLS, cfg.ClientTLS}, {peerTLS, cfg.PeerTLS}} {
		for _, file := range []struct{ what, name string }{{"cert", port.files.Cert}, {"key", port.files.Key}, {"ca", port.files.CA}} {
			if file.name == "" && !(port.what == clientTLS && file.what == "ca" && cfg.Tokens != (TokenConfig{})) {
				fault("%s-%s: no file is named, and others of TLS are: both ports need a certificate, its key and an authority", port.what, file.what)
			}
		}
	}
	if cfg.InsecurePrincipals {
		fault("insecure-principals: with TLS, a client's certificate says who it is")
	}
}

// openCertificates reads the certificates of both ports, and checks that this replica could be called with them.
func (r *Replica) openCertificates() (err error) {
	r.clientCerts, r.peerCerts, err = r.cfg.readCertificates()
	return err
}

// CheckCertificates returns what is wrong with the files of certificates, as Start does; nil if none is configured. If a file is missing or
// may not be read, errors.Is finds fs.ErrNotExist or fs.ErrPermission.
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

// warning is what an operator should see to soon: of the disk, else of the certificates, else of the keys of tokens. It names
// keys of the configuration, and nothing of the machine: everybody may read /readyz. The log has the files.
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

// endOf returns when a port's own certificate ends, in seconds since 1970; 0 if it has none.
func endOf(store *certs.Store) float64 { return firstOf((*certs.Store).End, store) }

// firstOf is the first of the times that some stores have, in seconds since 1970; 0 if none has one.
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

// listener is the client port.
func (r *Replica) listener() wire.Listener {
	l := wire.Listener{Listener: r.cfg.ClientListener, Clock: r.cfg.Clock, Connections: r.conns}
	if r.clientCerts != nil {
		l.Certificates = r.clientCerts
	}
	if r.tokens != nil {
		l.Tokens = clientTokens{r.tokens}
	}
	return l
}

// watchCertificates reads certificates again when their files change, and closes connections that
// would not be accepted any more, of clients whose tokens do not count any more, too, until ctx ends.
func (r *Replica) watchCertificates(ctx context.Context) {
	if r.clientCerts == nil {
		return
	}
	every := time.NewTicker(certificatesEvery)
	defer every.Stop()
	said, failed := map[string]string{}, map[string]string{} // by port
	for {
		r.warnOfEnds(said, clientTLS, r.clientCerts, r.cfg.ClientTLS)
		r.warnOfEnds(said, peerTLS, r.peerCerts, r.cfg.PeerTLS)
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		r.refresh(failed, clientTLS, r.clientCerts)
		if n := r.conns.Recheck(); n > 0 {
			r.log.Warn("closed connections of clients whose certificates or tokens do not count any more", "connections", n)
		}
		r.refresh(failed, peerTLS, r.peerCerts)
		if n := r.port.Recheck(); n > 0 {
			r.log.Warn("closed connections of replicas whose certificates do not count any more", "connections", n)
		}
	}
}

// warnOfEnds logs a warning about the certificates of one port, with their files, when it is another than the one that was said last.
func (r *Replica) warnOfEnds(said map[string]string, port string, store *certs.Store, files TLSFiles) {
	warning := store.Warning(port)
	if warning != "" && warning != said[port] {
		//mutant: r.log.Debug(warning, "event", "certificate_due", "file", files.Cert, "ca", files.CA, "crl", files.CRL) //by TestWarningsNameNoFiles of ./cell
		r.log.Warn(warning, "event", "certificate_due", "file", files.Cert, "ca", files.CA, "crl", files.CRL)
	}
	said[port] = warning
}

// refresh reads the files of one port again, if they have changed. A fault is logged when it is another than the last, in failed: a
// file that is missing is missing each time.
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
