package cell_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	door "github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/certs"
)

// httpPort is the http port of a replica, in memory.
type httpPort struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHTTPPort() *httpPort {
	return &httpPort{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *httpPort) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *httpPort) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7441} }

func (p *httpPort) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// browserConn is a connection that comes from somewhere.
type browserConn struct {
	net.Conn
	from net.Addr
}

func (c browserConn) RemoteAddr() net.Addr { return c.from }

func (p *httpPort) dial(ctx context.Context, from string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case p.conns <- browserConn{theirs, &net.TCPAddr{IP: net.ParseIP(from), Port: 50_000}}:
		return mine, nil
	case <-p.closed:
		return nil, errors.New("nobody listens")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// consoles are the http ports of a cell's replicas, which all have a console.
type consoles struct {
	mu     sync.Mutex // guards what follows
	ports  map[string]*httpPort
	opened []*http.Transport // of browsers
}

// close closes all browsers. Both ends say at the same time that they have, over pipes that nobody reads; that ends after five seconds.
func (c *consoles) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.opened {
		one.CloseIdleConnections()
	}
	testbed.Pass(6 * time.Second)
}

func (c *consoles) edit(cfg *cell.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ports == nil {
		c.ports = map[string]*httpPort{}
	}
	port := newHTTPPort()
	c.ports[cfg.ID] = port
	cfg.Console, cfg.HTTPListener = true, port
}

func (c *consoles) port(id string) *httpPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ports[id]
}

// browser is somebody's browser, at a replica.
type browser struct {
	t      *testing.T
	client *http.Client
	base   string
	jar    *cookiejar.Jar
}

// open opens a browser; pair is the certificate in it, nil for none, and secure is nil where there is no TLS.
func (c *consoles) open(t *testing.T, id string, secure *tls.Config) *browser {
	t.Helper()
	jar := must(cookiejar.New(nil))(t)
	b := &browser{t: t, jar: jar, base: "http://localhost:7441"}
	transport := &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return c.port(id).dial(ctx, "192.0.2.7") },
		TLSClientConfig: secure,
	}
	if secure != nil {
		b.base = "https://" + id
	}
	c.mu.Lock()
	c.opened = append(c.opened, transport)
	c.mu.Unlock()
	b.client = &http.Client{Transport: transport, Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return b
}

// answer is what a browser got.
type answer struct {
	code   int
	header http.Header
	body   string
}

// is fails the test unless the answer has that status.
func (a answer) is(t testing.TB, code int, what string) {
	t.Helper()
	failIf(t, a.code != code, "%s: status %d, want %d\n%s", what, a.code, code, a.body)
}

func (b *browser) do(method, path string, form url.Values, edits ...func(*http.Request)) answer {
	b.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	q, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, body)
	noErr(b.t, err)
	if form != nil {
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		q.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, edit := range edits {
		edit(q)
	}
	reply, err := b.client.Do(q)
	stopIf(b.t, err != nil, "%s %s: %v", method, path, err)
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	noErr(b.t, err)
	return answer{reply.StatusCode, reply.Header, string(text)}
}

func (b *browser) get(path string, edits ...func(*http.Request)) answer {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil, edits...)
}

// page returns a page that is there.
func (b *browser) page(path string) string {
	b.t.Helper()
	a := b.get(path)
	failIf(b.t, a.code != http.StatusOK, "%s: status %d\n%s", path, a.code, a.body)
	return a.body
}

// firstTold returns the first event of a stream.
func (b *browser) firstTold(path string) string {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	q := must(http.NewRequestWithContext(ctx, http.MethodGet, b.base+path, nil))(b.t)
	reply, err := b.client.Do(q)
	noErr(b.t, err)
	defer func() { _ = reply.Body.Close() }()
	var text strings.Builder
	for one := make([]byte, 1); !strings.HasSuffix(text.String(), "\n\n"); {
		if _, err := reply.Body.Read(one); err != nil {
			return text.String()
		}
		text.Write(one)
	}
	return text.String()
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// csrf returns the token of a page's forms.
func csrf(t *testing.T, body string) string {
	t.Helper()
	m := csrfField.FindStringSubmatch(body)
	stopIf(t, m == nil, "no form:\n%s", body)
	return m[1]
}

// asUpdate is how a page asks for its own newest state.
func asUpdate(q *http.Request) { q.Header.Set("HX-Request", "true") }

// Only a member of the cell speaks for others at the client port, by its certificate for the other replicas. What it says is not done with its
// own rights: the guest's count. A caller that has another certificate, and names an operator, is refused.
func TestSpeakers(t *testing.T) {
	crl, own := filepath.Join(t.TempDir(), "replicas.crl"), map[string]string{}
	var starting sync.Mutex
	inSecureConsoleCell(t, 3, func(t *testing.T, ctx context.Context, c *consoleCell) {
		speak := func(files certs.Files, guest, protocol string) *client.Cell {
			pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
			c.clients.check(err)
			config := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}}
			cl, err := client.Dial(ctx, client.Config{Servers: c.Servers(), Clock: celltest.Clock, NoTLS: true, Dialer: func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := c.DialFrom("far")(ctx, address)
				if err != nil {
					return nil, err
				}
				encrypted := tls.Client(conn, config)
				return encrypted, errors.Join(encrypted.HandshakeContext(ctx), door.Guest{Principal: guest, Address: "192.0.2.7:1"}.Introduce(encrypted))
			}})
			c.clients.check(err)
			return cl
		}
		look := func(cl *client.Cell) (operator bool, err error) {
			limit, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			o, err := cl.Overview(limit, 1)
			return o.Whole, err
		}
		replica := func(a authority, id string) certs.Files {
			return a.put(a.IssueReplica(certs.Replica{Cell: "local", ID: id}, time.Hour))
		}
		r2 := replica(c.replicas, "r2")
		for who, one := range map[string]struct {
			files certs.Files
			guest string
			want  string
		}{
			"a client":                             {c.clients.client("alice"), "ops", "does not count"},
			"an operator":                          {c.clients.client("ops"), "alice", "does not count"},
			"a replica of the clients' authority":  {replica(c.clients, "r2"), "ops", "does not count"},
			"a client of the replicas' authority":  {c.replicas.client("ops"), "ops", "names 0 replicas"},
			"a replica that is no member":          {replica(c.replicas, "r9"), "ops", "no member"},
			"a replica of another cell":            {c.replicas.put(c.replicas.IssueReplica(certs.Replica{Cell: "other", ID: "r2"}, time.Hour)), "ops", "no member"},
			"a member, for a name of another kind": {r2, "@operators", "cannot be a principal"},
			"a member, for nobody":                 {r2, "", "cannot be a principal"},
		} {
			cl := speak(one.files, one.guest, door.GuestProtocol)
			if _, err := look(cl); !errors.Is(err, api.Unauthenticated) || !strings.Contains(err.Error(), one.want) {
				t.Errorf("%s speaks for %.20q: %v, want %q", who, one.guest, err, one.want)
			}
			_ = cl.Close()
		}
		for what, cl := range map[string]*client.Cell{
			"with an endless introduction":           speak(r2, strings.Repeat("a", 3<<10), door.GuestProtocol),
			"without asking for it, as clients call": speak(r2, "ops", "h2"),
		} {
			if _, err := look(cl); err == nil {
				t.Errorf("a member speaks for somebody %s", what)
			}
			_ = cl.Close()
		}
		for guest, want := range map[string]bool{"alice": false, "ops": true} {
			cl := speak(r2, guest, door.GuestProtocol)
			if operator, err := look(cl); err != nil || operator != want {
				t.Errorf("for %s a member is told as an operator: %v, %v", guest, operator, err)
			}
			c.replicas.revoke(crl, r2.Cert)
			time.Sleep(12 * time.Second) // virtual: the file is read, and connections are looked at
			synctest.Wait()
			if _, err := look(cl); !errors.Is(err, api.Unauthenticated) {
				t.Errorf("the certificate of the replica was revoked, and it speaks for others: %v", err)
			}
			_ = cl.Close()
			c.replicas.revoke(crl)
			time.Sleep(12 * time.Second)
		}
		conn, err := c.Replica("r1").DialForGuest(ctx, "alice", c.Servers()[2])
		c.clients.check(err)
		defer conn.Close()
		if _, err := conn.Write([]byte{0}); err != nil {
			t.Errorf("r1 speaks at r3: %v", err)
		}
		c.replicas.revoke(crl, own["r3"])
		time.Sleep(12 * time.Second)
		if _, err := conn.Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("r1 speaks at r3, whose certificate was revoked: %v", err)
		}
	}, func(cfg *cell.Config) {
		starting.Lock() // replicas start at once
		defer starting.Unlock()
		if own[cfg.ID] = cfg.PeerTLS.Cert; len(own) == 1 {
			pair, err := certs.ReadPair(cfg.PeerTLS.CA, strings.TrimSuffix(cfg.PeerTLS.CA, "crt")+"key")
			if err != nil {
				t.Error(err)
			}
			authority{Pair: pair, t: t}.revoke(crl)
		}
		cfg.PeerTLS.CRL = crl
	})
}
