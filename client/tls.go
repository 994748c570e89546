package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/certs"
)

// TLSFiles are the files, in PEM, by which a client and the replicas of a cell know each other:
// the client's certificate (Cert) and its key (Key), and the authorities that have signed those
// of the replicas (CA). CRL may name a revocation list of these authorities. They are read again
// when they have changed, for each connection that is made.
type TLSFiles = certs.Files

// encryption encrypts the connections of a Cell; nil if they are not.
type encryption struct {
	certificates *certs.Store
	logger       *slog.Logger
}

// newEncryption reads the certificates that a configuration names, or that the variables or the file of cells do.
func newEncryption(cfg Config) (*encryption, error) {
	files := cfg.TLS
	if files == (TLSFiles{}) {
		var err error
		if files, err = processSources().tlsFiles(cfg.Cell); err != nil || files == (TLSFiles{}) {
			return nil, err
		}
	}
	if files.CA == "" {
		return nil, api.Errorf(api.InvalidArgument, "the certificates name no CA: who has signed those of the servers? (Config.TLS.CA, --cacert, CHUBBY_CACERT)")
	}
	store, err := certs.Open(files)
	if err != nil {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "read certificates", Message: err.Error(), Err: err}
	}
	return &encryption{certificates: store, logger: cfg.Logger}, nil
}

// secure encrypts a connection to a replica, and closes it if the replica's certificate is not one for the host
// that was dialled.
func (e *encryption) secure(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	if e == nil {
		return conn, nil
	}
	if _, err := e.certificates.Refresh(); err != nil {
		e.logger.Warn("the files of certificates cannot be read again; what was read before stays in use", "error", err)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	encrypted := tls.Client(conn, e.certificates.Client(host, nil))
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(explainHandshake(address, err), conn.Close())
	}
	return encrypted, nil
}

// explainHandshake says what to do about an error of a handshake that time does not mend.
func explainHandshake(address string, err error) error {
	var plain tls.RecordHeaderError
	var unverified *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &plain):
		return &api.Error{Code: api.Unauthenticated, Message: "the server at " + address + " does not speak TLS: is the cell insecure?", Err: err}
	case errors.As(err, &unverified), errors.As(err, &unknown), errors.As(err, &name), errors.As(err, &invalid):
		return &api.Error{Code: api.Unauthenticated, Message: "the server at " + address + " is not who it should be: " + err.Error(), Err: err}
	}
	return err
}
