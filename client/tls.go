package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/internal/tokens"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TLSFiles are the files, in PEM, by which a client and the replicas of a cell know each other: the client's
// certificate (Cert) and its key (Key), and the authorities that have signed the replicas' (CA). CRL may name
// a revocation list of these authorities. Each new connection reads changed files again.
type TLSFiles = certs.Files

// encryption encrypts the connections of a Cell; nil if they are not.
type encryption struct {
	certificates *certs.Store
	credentials  Credentials // nil if the certificate identifies the client
	logger       *slog.Logger
}

func newEncryption(ctx context.Context, cfg Config) (*encryption, error) {
	if cfg.NoTLS {
		return nil, nil //nolint:nilnil // there is no encryption, and that is no error
	}
	own := identity{TLSFiles: cfg.TLS}
	if cfg.Credentials != nil {
		own.token = "Config.Credentials"
	}
	var err error
	if own.CA == "" || own.Cert == "" && own.token == "" {
		found, err := processSources().identity(cfg.Cell)
		if err != nil {
			return nil, err
		}
		own = own.or(found)
	}
	if own == (identity{}) {
		return nil, nil //nolint:nilnil // there is no encryption, and that is no error
	}
	e := &encryption{credentials: cfg.Credentials, logger: cfg.Logger}
	if e.credentials == nil && own.token != "" {
		e.credentials = TokenFile(own.token)
	}
	if e.credentials != nil {
		if _, err := e.credentials.Token(ctx); err != nil { // before other missing files are reported
			return nil, &api.Error{Code: api.InvalidArgument, Op: "read the token", Message: err.Error(), Err: err}
		}
	}
	if err := own.check(); err != nil {
		return nil, err
	}
	if e.certificates, err = certs.Open(own.TLSFiles); err != nil {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "read certificates", Message: err.Error(), Err: err}
	}
	return e, nil
}

// secure encrypts a connection to a replica, and closes it if the replica's certificate is not for the
// dialled host.
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
	if host == "" {
		return nil, errors.Join(api.Errorf(api.Unauthenticated, "the address %q names no host, so nothing says whose certificate the server there has to have", address), conn.Close())
	}
	encrypted := tls.Client(conn, e.certificates.Client(host, nil))
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(explainHandshake(address, err), conn.Close())
	}
	return encrypted, nil
}

// explainHandshake says what to do about a permanent error of a handshake.
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

// Credentials identify a client without a certificate. Their methods may be called from several goroutines.
type Credentials interface {
	// Token returns a bearer token. Each new connection asks for one, so a token that lasts for minutes will
	// do. A connection ends when its token expires, and another is made; sessions and locks stay.
	Token(ctx context.Context) (string, error)
}

// TokenFile returns the credentials in a file, read for each connection: to renew the token, replace the
// file. Kubernetes gives tokens to programs this way.
func TokenFile(name string) Credentials { return tokenFile(name) }

type tokenFile string

func (f tokenFile) Token(context.Context) (string, error) { return tokens.ReadFile(string(f)) }

// introduce identifies the client first over a new connection. A rejection is no error here: the replica
// answers each call with it.
func (e *encryption) introduce(ctx context.Context, l link) error {
	if e == nil || e.credentials == nil {
		return nil
	}
	token, err := e.credentials.Token(ctx)
	if err != nil {
		return fmt.Errorf("read the token: %w", err)
	}
	over := struct{ cell chubbypb.CellClient }{chubbypb.NewCellClient(l)}
	_, err = over.cell.Authenticate(ctx, &chubbypb.AuthenticateRequest{Token: token})
	switch {
	case err == nil, isAnswer(err):
		return nil
	case status.Code(err) == codes.Unimplemented:
		return nil // an earlier replica, which takes no tokens, and says so for each call
	}
	return err
}
