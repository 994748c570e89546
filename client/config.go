package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/bootclock"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/internal/tokens"
	"github.com/chubbylock/chubby/session"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Config is the configuration of a client. The zero Config is for the cell named local. Do not change it
// after New or Dial.
type Config struct {
	// Cell is the name of the cell; empty is "local".
	Cell string
	// Servers are client addresses (host:port) of some or all of the cell's replicas. If it is empty, each
	// search for the master finds them anew as the function Servers describes.
	Servers []string
	// As is the principal to act as, where the servers believe the client's word; else empty.
	As string
	// TLS names the files of certificates. The variables CHUBBY_CACERT, CHUBBY_CERT and CHUBBY_KEY, or else
	// the cell's entry in the file of cells (see the function Servers), supply the rest. Without any,
	// connections are plain, and only insecure cells accept them. A server's certificate must be for the host
	// of its address.
	TLS TLSFiles
	// Credentials identify the client, in place of the certificate TLS.Cert. Without both, the variable
	// CHUBBY_TOKEN_FILE or token-file in the file of cells may name a file with a token.
	Credentials Credentials
	// NoTLS leaves the connections as Dialer makes them, whatever variables and the file of cells name:
	// another program encrypts them, and identifies the client. TLS and Credentials must be zero.
	NoTLS bool

	// Lease is the requested lease, from api.MinLease to api.MaxLease; 0 is api.DefaultLease. The master may
	// grant a longer one.
	Lease time.Duration
	// Grace is the grace period: how long after the local end of its lease a session may still be saved
	// (Chubby §2.8); 0 is api.DefaultGrace.
	Grace time.Duration

	// NoCache makes every read ask the cell. Otherwise the client caches reads (Chubby §2.7): a change by
	// others waits until this client has dropped the node, which takes a round trip, or its cache lease has
	// run out (see "Cache" in the documentation of the package). Processes that read little should set it.
	NoCache bool
	// CacheSize limits the cache, in bytes, roughly; 0 is 64 MiB.
	CacheSize int

	// DialTimeout limits one attempt to connect to one replica; 0 is 2 s.
	DialTimeout time.Duration
	// CallTimeout limits one attempt of one call, so that a hanging replica does not block the call; its
	// context limits that. 0 is 5 s. (After one second the client asks the other replicas for another
	// master.)
	CallTimeout time.Duration

	// RefusedFor limits the search for the master while all servers refuse the connection, have unknown
	// names, or speak HTTP, and none was ever reached. Then calls fail with Unavailable and the cause
	// NothingListens. 0 is as long as the context of the call lasts.
	RefusedFor time.Duration

	// Clock measures leases. nil is a clock that counts during suspends too, where the system has one.
	Clock session.Clock
	// Tracer traces calls and their attempts (OpenTelemetry): each call has a span, a child of its context's;
	// a master that traces calls continues it. nil traces nothing, and costs nothing. Calls that the cache
	// answers have no span. An error of a traced call names its trace.
	Tracer trace.TracerProvider
	// Logger logs fail-overs, jeopardy and lost locks; nil logs nothing.
	Logger *slog.Logger
	// Dialer connects to a replica; nil is TCP, which looks a name up each time.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	// OnState is called after every change of the session's state except Close, in order and from one
	// goroutine. It must not call Close, which waits for it. Only further changes, and log lines, wait for
	// it. Beyond 64 waiting changes, a new one replaces the newest, so that the last report is the session's
	// state.
	OnState func(StateChange)
	// Meter receives the work of all sessions, calls and connections of the Cell, for metrics; it may be nil.
	// Several Cells may share one.
	Meter *Meter
}

// SessionConfig is a session's part of a Config, with the same zero values: sessions of one Cell may differ
// in it. Config.Session returns it.
type SessionConfig struct {
	As        string
	Lease     time.Duration
	Grace     time.Duration
	NoCache   bool
	CacheSize int
	Clock     session.Clock
	Logger    *slog.Logger
	OnState   func(StateChange)
}

// Session returns the session's part.
func (c Config) Session() SessionConfig {
	return SessionConfig{
		As: c.As, Lease: c.Lease, Grace: c.Grace, NoCache: c.NoCache, CacheSize: c.CacheSize,
		Clock: c.Clock, Logger: c.Logger, OnState: c.OnState,
	}
}

func (c Config) withSession(s SessionConfig) Config {
	c.As, c.Lease, c.Grace, c.NoCache, c.CacheSize = s.As, s.Lease, s.Grace, s.NoCache, s.CacheSize
	c.Clock, c.Logger, c.OnState = s.Clock, s.Logger, s.OnState
	return c
}

// StateChange is a change of a session's state (Chubby §2.8).
type StateChange struct {
	State session.State // the new state
	Epoch api.Epoch     // of the newest grant
	Left  time.Duration // until the local end of the lease; in jeopardy, of the grace period
	Err   error         // why the session is gone
	Heard string        // in jeopardy, the replicas' last answers to the search for the master, for people; empty if unknown
}

const (
	defaultDialTimeout = 2 * time.Second // a reachable host answers sooner, even on another continent
	defaultCacheSize   = 64 << 20        // bytes: 256 of the largest files; of small ones the cell allows a session about 15,000
	defaultCallTimeout = 5 * time.Second // longer than a healthy master under load takes
)

func (c Config) withDefaults() Config {
	c.Cell = cmp.Or(c.Cell, api.LocalCell)
	c.Lease, c.Grace = cmp.Or(c.Lease, api.DefaultLease), cmp.Or(c.Grace, api.DefaultGrace)
	c.DialTimeout, c.CallTimeout = cmp.Or(c.DialTimeout, defaultDialTimeout), cmp.Or(c.CallTimeout, defaultCallTimeout)
	c.CacheSize = cmp.Or(c.CacheSize, defaultCacheSize)
	if c.Clock == nil {
		c.Clock = func() session.Instant { return session.Instant(bootclock.Now()) }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Dialer == nil {
		dialer := net.Dialer{Timeout: c.DialTimeout}
		c.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	return c
}

func (c Config) validate() error {
	var faults []error
	refuse := func(is bool, format string, args ...any) {
		if is {
			faults = append(faults, api.Errorf(api.InvalidArgument, format, args...))
		}
	}
	refuse(!api.ValidCell(c.Cell), "Cell %q is no cell's name: want letters, digits, '-', '_' and '.'", c.Cell)
	refuse(c.Lease < api.MinLease || c.Lease > api.MaxLease, "Lease is %v; want %v to %v", c.Lease, api.MinLease, api.MaxLease)
	refuse(c.Grace < 0, "Grace is %v; it cannot be negative", c.Grace)
	refuse(c.CacheSize < 0, "CacheSize is %d; it cannot be negative: NoCache is for none", c.CacheSize)
	refuse(c.DialTimeout < 0 || c.CallTimeout < 0, "DialTimeout is %v and CallTimeout %v; neither can be negative", c.DialTimeout, c.CallTimeout)
	refuse(c.NoTLS && (c.TLS != (TLSFiles{}) || c.Credentials != nil), "NoTLS is set, and TLS or Credentials are, too: which of them counts?")
	refuse(c.RefusedFor < 0, "RefusedFor is %v; it cannot be negative", c.RefusedFor)
	refuse(len(c.As) > api.MaxPrincipal, "As is %d bytes long; at most %d are allowed", len(c.As), api.MaxPrincipal)
	for _, server := range c.Servers {
		if _, err := withPort(server); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

func rootPath(c Config) string { return "/" + api.Root + "/" + c.Cell }

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
