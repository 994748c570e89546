package cell

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/cell/internal/loglimit"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health is the answer of /readyz, as JSON.
type Health struct {
	Ready   bool   `json:"ready"`             // this replica serves as master, or knows a master
	Cell    string `json:"cell"`              // the cell's name
	Replica string `json:"replica"`           // this replica's id
	Role    string `json:"role"`              // master, replica, or candidate: no master is known
	Master  string `json:"master"`            // the believed master's id, or empty
	Address string `json:"master_address"`    // where clients reach it
	Epoch   uint64 `json:"epoch"`             // the newest epoch that this replica knows
	Warning string `json:"warning,omitempty"` // what needs an operator's attention soon
}

type endpoint struct {
	path, help string
	handler    http.Handler
}

// endpoints returns all paths of a replica's http port; docs/metrics.md lists them.
func endpoints(r *Replica) []endpoint {
	return []endpoint{
		{
			path: "/healthz", help: "200 while the process is alive: for the probe that restarts it.",
			handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answerJSON(w, http.StatusOK, map[string]bool{"alive": true})
			}),
		},
		{
			path: "/readyz", help: "200 if the replica serves as master or knows a master that can, 503 if not; with the fields below, as JSON.",
			handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				health := r.Health()
				code := http.StatusOK
				if !health.Ready {
					code = http.StatusServiceUnavailable
				}
				answerJSON(w, code, health)
			}),
		},
		{
			path: "/metrics", help: "the metrics below, in Prometheus's text format.",
			handler: promhttp.HandlerFor(r.metrics.registry, promhttp.HandlerOpts{
				EnableOpenMetrics: r.cfg.Tracing.Provider != nil, // which has exemplars
			}),
		},
	}
}

// Limits of a connection of the http port. A scrape or health check sends a few hundred bytes at once.
const (
	httpHeaderTime  = 5 * time.Second  // to send a request
	httpAnswerTime  = 30 * time.Second // to take the answer
	httpIdleTime    = time.Minute      // without a request
	httpHeaderBytes = 12 << 10         // of a request; net/http reads 4 KiB more
)

func newHTTPServer(r *Replica) *http.Server {
	served := door{}
	for _, e := range endpoints(r) {
		served[e.path] = e.handler
	}
	var handler http.Handler = served
	if r.ports.console != nil {
		handler = r.ports.console.Beside(served)
	}
	return &http.Server{
		Handler: handler, DisableGeneralOptionsHandler: true, // "OPTIONS *" is not in the table either
		ReadHeaderTimeout: httpHeaderTime, ReadTimeout: httpHeaderTime, WriteTimeout: httpAnswerTime,
		IdleTimeout: httpIdleTime, MaxHeaderBytes: httpHeaderBytes, ErrorLog: slog.NewLogLogger(&httpErrors{log: r.log}, slog.LevelWarn),
	}
}

// door has the handlers of the http port by path, and rewrites no path. All refusals say the same, and end the
// connection.
type door map[string]http.Handler

func (d door) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	handler, ok := d[q.URL.EscapedPath()]
	switch {
	case !ok:
		refuse(w, http.StatusNotFound)
	case q.Method != http.MethodGet && q.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed)
	case q.ContentLength != 0: // -1: the length is unknown
		refuse(w, http.StatusRequestEntityTooLarge)
	default:
		handler.ServeHTTP(w, q)
	}
}

// refuse answers without reading a body, and ends the connection. net/http would read up to 256 KiB first.
func refuse(w http.ResponseWriter, code int) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // a connection without deadlines ends with ReadTimeout
	w.Header().Set("Connection", "close")
	http.Error(w, http.StatusText(code), code)
}

func answerJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // fails if the reader is gone
}

// Health returns this replica's view of itself and of the master. A leader of Raft serves only after its epoch
// has begun, by an entry that this replica has applied.
func (r *Replica) Health() Health {
	h := Health{Cell: r.cfg.Cell, Replica: r.cfg.ID, Role: r.role(), Epoch: uint64(r.fsm.State().Epoch), Warning: r.warning()}
	_, id := r.raft.LeaderWithID()
	h.Master, h.Address = string(id), r.clientAddress(string(id))
	//mutant: h.Ready = r.master.Load() != nil || h.Master != "" && h.Master != r.cfg.ID //by TestElectedAndUnableToTakeOver of ./cell
	h.Ready = r.master.Load() != nil || h.Master != "" && h.Master != r.cfg.ID && h.Epoch == r.raft.CurrentTerm()
	return h
}

// warning returns what needs an operator's attention soon: disk, certificates, token keys, differing replicas,
// in this order. Everybody may read /readyz, so it names configuration keys; the log names the files.
func (r *Replica) warning() string {
	note := cmp.Or(r.space.Note(), r.credentials.warning())
	if differ := r.checks.comparison.Differing(); len(differ) > 0 && note == "" {
		note = "replicas that differ from this one, or did before they stopped: " + strings.Join(differ, ", ") + "; see the logs, and chubbyctl cell status"
	}
	return note
}

// maxHTTPConns limits the connections of the http port. A scrape or health check takes milliseconds.
const maxHTTPConns = 256

// turnover is a listener with a limit of connections: for one more it closes the oldest. So a flood of
// connections, each idle for up to a minute, does not block the files of the log and the snapshots, or health
// checks.
type turnover struct {
	net.Listener
	most int

	mu   sync.Mutex // guards open
	open []*turnoverConn
}

type turnoverConn struct {
	net.Conn
	of *turnover
}

func (t *turnover) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, wire.AcceptError{Err: err}
	}
	c := &turnoverConn{Conn: conn, of: t}
	t.mu.Lock()
	t.open = append(t.open, c)
	var oldest *turnoverConn
	if len(t.open) > t.most {
		oldest = t.open[0]
	}
	t.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close() // its server notices
	}
	return c, nil
}

func (c *turnoverConn) Close() error {
	c.of.mu.Lock()
	for i, one := range c.of.open {
		if one == c {
			c.of.open = append(c.of.open[:i], c.of.open[i+1:]...)
			break
		}
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// httpErrors is the log of the http server, with a line for each failed connection and each panic of a handler.
// It limits the lines, since strangers can cause failures.
type httpErrors struct {
	log           *slog.Logger
	failed, panic loglimit.Refusals
}

var _ slog.Handler = (*httpErrors)(nil)

func (*httpErrors) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler. The record has only a message.
func (e *httpErrors) Handle(_ context.Context, r slog.Record) error {
	text := strings.TrimSpace(r.Message)
	if strings.HasPrefix(text, "http: panic serving") {
		if _, ok := e.panic.Next(); ok {
			e.log.Error("a request to the http port panicked: this is a bug", "event", "bug", "error", text)
		}
	} else if n, ok := e.failed.Next(); ok {
		e.log.Warn("a connection of the http port has failed", "event", "connection_refused", "error", text, "count", n)
	}
	return nil
}

func (e *httpErrors) WithAttrs([]slog.Attr) slog.Handler { return e }

func (e *httpErrors) WithGroup(string) slog.Handler { return e }

// handshakeByte is the first byte of every TLS connection, and of no HTTP request.
const handshakeByte = 22

// sniffer is the listener of an http port with certificates and a console. Connections that begin with a TLS
// handshake are encrypted; others, of probes and Prometheus, are plain.
//
// Goroutines, in work: one accepts, and each connection without a first byte has one, for httpHeaderTime at most.
// Close ends them, and all connections.
type sniffer struct {
	*turnover
	certificates *certs.Store
	ready        chan net.Conn
	failed       chan error
	closed       chan struct{}
	work         sync.WaitGroup
	once         sync.Once
}

func newSniffer(t *turnover, certificates *certs.Store) *sniffer {
	s := &sniffer{turnover: t, certificates: certificates, ready: make(chan net.Conn), failed: make(chan error), closed: make(chan struct{})}
	s.work.Go(s.acceptAll)
	return s
}

// acceptAll accepts until the listener is closed. The listener below limits the connections.
func (s *sniffer) acceptAll() {
	for {
		conn, err := s.turnover.Accept()
		if err != nil {
			select {
			case s.failed <- err:
				continue // the server decides whether to go on, and closes the listener if not
			case <-s.closed:
				return
			}
		}
		s.work.Go(func() { s.sniff(conn) })
	}
}

// sniff waits for a connection's first byte, and hands the connection to Accept.
func (s *sniffer) sniff(conn net.Conn) {
	late := time.AfterFunc(httpHeaderTime, func() { _ = conn.Close() })
	first := &sniffedConn{Conn: conn}
	n, err := conn.Read(first.byte[:])
	if !late.Stop() || err != nil || n == 0 {
		_ = conn.Close() // nothing was sent
		return
	}
	var served net.Conn = first
	if first.byte[0] == handshakeByte {
		served = s.certificates.AcceptHTTP(first)
	}
	select {
	case s.ready <- served:
	case <-s.closed:
		_ = conn.Close()
	}
}

func (s *sniffer) Accept() (net.Conn, error) {
	select {
	case conn := <-s.ready:
		return conn, nil
	case err := <-s.failed:
		return nil, err
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *sniffer) Close() error {
	s.once.Do(func() { close(s.closed) })
	err := s.Listener.Close()
	s.mu.Lock()
	open := slices.Clone(s.open)
	s.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close() // its server, which closes this listener, is being closed, too
	}
	return err
}

type sniffedConn struct {
	net.Conn
	byte [1]byte
	read bool // again; the reader's
}

func (c *sniffedConn) Read(p []byte) (int, error) {
	if c.read || len(p) == 0 {
		return c.Conn.Read(p)
	}
	c.read = true
	return copy(p, c.byte[:]), nil
}
