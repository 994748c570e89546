package cell

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/testbed"
)

// startHTTPPort serves the http port of a replica on a loopback socket, with other times, and returns its address.
func startHTTPPort(t *testing.T, edit func(*http.Server)) (*Replica, string) {
	t.Helper()
	r := startAlone(t, func(cfg *Config) { cfg.Data = t.TempDir() + "/secretdata" })
	testbed.Await(t, "a master", func() bool { return r.master.Load() != nil })
	server, l := newHTTPServer(r), testbed.Loopback(t)
	edit(server)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	return r, l.Addr().String()
}

// hastened divides the times of a server; those that are not there stay away. What is left is enough for what the tests send,
// on a busy machine too.
func hastened(s *http.Server) {
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = s.ReadHeaderTimeout/2, s.ReadTimeout/2, s.WriteTimeout/10, s.IdleTimeout/20
}

// keptFor is when a connection counts as one that is kept.
const keptFor = time.Minute

// said sends bytes to the port, and then more until it does not take them any more, and returns all that it answers
// until it ends the connection.
func said(t *testing.T, address, begin, more string) string {
	t.Helper()
	conn := must(net.Dial("tcp", address))(t)
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(keptFor))
	must(io.WriteString(conn, begin))(t)
	sending := make(chan struct{})
	go func() {
		defer close(sending)
		for more != "" {
			if _, err := io.WriteString(conn, more); err != nil {
				return
			}
		}
	}()
	answer, err := io.ReadAll(conn)
	failIf(t, errors.Is(err, os.ErrDeadlineExceeded), "%.40q and so on: the connection is kept; it answered %q", begin, answer)
	_ = conn.Close()
	<-sending
	return string(answer)
}

// Who sends headers, bodies or nothing at all, slowly or without end, or does not take the answers, loses the connection
// in bounded time, and no body is read.
func TestAttacksOnTheHTTPPort(t *testing.T) {
	_, address := startHTTPPort(t, hastened)
	const get = "GET /healthz HTTP/1.1\r\nHost: h\r\n"
	for name, c := range map[string]struct{ begin, more, want string }{
		"nothing":        {"", "", ""},
		"half a header":  {get, "", ""},
		"endless header": {get + "A: " + strings.Repeat("a", 64<<10), "", "HTTP/1.1 431 "},
		"endless body":   {get + "Transfer-Encoding: chunked\r\n\r\n", "5\r\nabcde\r\n", "HTTP/1.1 413 "},
		"idle":           {get + "\r\n", "", "HTTP/1.1 200 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := said(t, address, c.begin, c.more); !strings.HasPrefix(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	t.Run("answers that nobody takes", func(t *testing.T) {
		t.Parallel()
		conn, err := net.Dial("tcp", address)
		noErr(t, err)
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(keptFor))
		for err == nil {
			_, err = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
		}
		failIf(t, errors.Is(err, os.ErrDeadlineExceeded), "the connection is kept")
	})
}

// A body that is announced and does not come keeps no connection for a moment, whatever time there is for requests.
func TestNoBodyIsReadAtTheHTTPPort(t *testing.T) {
	_, address := startHTTPPort(t, func(s *http.Server) {
		s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout = time.Hour, time.Hour, time.Hour
	})
	for _, q := range []string{"GET /healthz", "POST /healthz", "POST /absent"} {
		if got := said(t, address, q+" HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\na", ""); !strings.HasPrefix(got, "HTTP/1.1 4") {
			t.Errorf("%s with a body: %q", q, got)
		}
	}
}

var date = regexp.MustCompile(`Date: [^\r]*\r\n`)

// TestHTTPPortAnswersItsTableOnly tries all endpoints, and other paths, by every method and protocol. Refusals are
// the same byte by byte, whatever was asked.
func TestHTTPPortAnswersItsTableOnly(t *testing.T) {
	r, address := startHTTPPort(t, hastened)
	others := []string{"/", "*", "//healthz", "/healthz/", "/healthz/../metrics", "/./metrics", "/%68ealthz", "/debug/pprof/", "/debug/vars", "/favicon.ico", "http://h/secret", "/HEALTHZ", "/metrics;a", "/metrics%00"}
	served := map[string]bool{}
	for _, e := range endpoints(r) {
		served[e.path], served[e.path+"?a=b"], served["http://other"+e.path] = true, true, true
	}
	refusals := map[string]string{}
	for _, version := range []string{"HTTP/1.1", "HTTP/1.0"} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PRI", "PROPFIND", "get"} {
			targets := slices.Clone(others)
			for target := range served {
				if method != "CONNECT" || target[0] == '/' {
					targets = append(targets, target)
				}
			}
			for _, target := range targets {
				if method == "CONNECT" && target[0] == 'h' {
					continue // not the form of a request
				}
				answer := said(t, address, method+" "+target+" "+version+"\r\nHost: h\r\nConnection: close\r\nUpgrade: h2c\r\n\r\n", "")
				want := "404"
				if served[target] {
					want = "405"
					if method == "GET" || method == "HEAD" {
						want = "200"
					}
				}
				if _, code, _ := strings.Cut(answer, " "); !strings.HasPrefix(code, want) {
					t.Errorf("%s %s %s: %q, want %s", method, target, version, answer, want)
					continue
				}
				for _, secret := range []string{"secretdata", r.cfg.Data} {
					failIf(t, strings.Contains(answer, secret), "%s %s tells %q:\n%s", method, target, secret, answer)
				}
				if want == "200" {
					continue
				}
				if method == "HEAD" {
					want += " without a body"
				}
				refusal := date.ReplaceAllString(answer, "")
				if was, ok := refusals[version+want]; ok && was != refusal {
					t.Errorf("%s %s %s is refused by %q, and others by %q", method, target, version, refusal, was)
				}
				refusals[version+want] = refusal
			}
		}
	}
	for _, kind := range []string{"HTTP/1.1404", "HTTP/1.1405", "HTTP/1.0404", "HTTP/1.0405"} {
		failIf(t, refusals[kind] == "", "nothing was refused with %s", kind)
	}
}

// The labels of metrics have values from short lists of the program: no principals, paths or files, which everybody could
// read there.
func TestMetricsNameNobody(t *testing.T) {
	r, _ := startHTTPPort(t, hastened)
	r.metrics.master.SessionEnded(api.ByClose, 1) // a metric with labels appears with its first value
	r.metrics.calls.answered("/chubby.Chubby/Open", api.OK, 0, "")
	families := must(r.metrics.registry.Gather())(t)
	allowed := []string{
		"chubby_sessions_ended_total reason", "chubby_call_seconds code", "chubby_call_seconds method", "go_info version", "chubby_build_info version", "chubby_build_info level", "go_gc_duration_seconds quantile",
		"chubby_quota_used_ratio kind", "chubby_takeover_phase_seconds phase",
		"chubby_lock_hold_seconds prefix", "chubby_lock_wait_seconds prefix", // "other", and what the operator lists in metric-prefixes
	}
	var text bytes.Buffer
	for _, f := range families {
		fmt.Fprintln(&text, f)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if name := f.GetName() + " " + l.GetName(); !slices.Contains(allowed, name) {
					t.Errorf("%s has the label %s: say here what its values are; names of principals, paths and files are none of them", f.GetName(), l.GetName())
				}
			}
		}
	}
	failIf(t, strings.Contains(text.String(), "secretdata"), "metrics name the data directory")
}

// A handler that panics is told as a bug, however many connections of strangers fail meanwhile.
func TestPanicsAreNotLostAmongStrangers(t *testing.T) {
	var text bytes.Buffer
	server := slog.NewLogLogger(&httpErrors{log: slog.New(slog.NewTextHandler(&text, nil))}, slog.LevelWarn)
	for range 1000 {
		server.Print("http: TLS handshake error from 192.0.2.1:1: EOF\n")
	}
	server.Print("http: panic serving 192.0.2.1:1: oops\ngoroutine 1\n")
	if said := text.String(); strings.Count(said, "\n") != 2 || strings.Count(said, "event=connection_refused") != 1 || strings.Count(said, "event=bug") != 1 || !strings.Contains(said, "oops") {
		t.Errorf("the log says\n%s", said)
	}
}

// A flood of connections to the http port that send nothing is bounded, and
// another client's request is answered meanwhile.
func TestFloodOfTheHTTPPort(t *testing.T) {
	r := startAlone(t, func(cfg *Config) { cfg.Listen.HTTP = "127.0.0.1:0" })
	address := r.cfg.HTTPListener.Addr().String()
	ask := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 2 {
		var flood []net.Conn
		for range maxHTTPConns + 1 {
			conn := must(net.Dial("tcp", address))(t)
			flood = append(flood, conn)
		}
		answer, err := ask.Get("http://" + address + "/healthz")
		noErr(t, err)
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("a health check meanwhile: %s, %v", answer.Status, err)
		}
		_ = answer.Body.Close()
		_ = flood[0].SetReadDeadline(time.Now().Add(2 * time.Second)) // before its header is overdue
		if _, err := flood[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the oldest connection is kept: %v", err)
		}
		for _, conn := range flood {
			_ = conn.Close()
		}
	}
}

// Clients' connections leave a replica the file descriptors that it needs itself.
func TestConnectionsLeaveDescriptors(t *testing.T) {
	for _, test := range []struct {
		wanted int
		limit  uint64
		want   int
	}{{20_000, 1 << 30, 20_000}, {20_000, 4096, 4096 - ownDescriptors}, {20_000, 1024, 256}, {20_000, 256, 64}, {100, 1024, 100}, {5, 0, 1}, {20_000, 1<<64 - 1, 20_000}} {
		if got := affordableConnections(test.wanted, test.limit); got != test.want {
			t.Errorf("of %d connections with %d descriptors: %d, want %d", test.wanted, test.limit, got, test.want)
		}
	}
}
