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
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/internal/testbed"
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
