package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/loglimit"
	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/internal/certs"
)

// credentials are the certificates of strangers, and of replicas.
type credentials struct {
	*testing.T
	replicas, clients certified // the two authorities of a cell; those of its replicas count on the Raft port
	ours              *certs.Store
	revoked           tls.Certificate
}

func newCredentials(t *testing.T) *credentials {
	c := &credentials{T: t, replicas: newCertified(t), clients: newCertified(t)}
	c.ours = c.replicas.replica("foo", "r1")
	made, err := c.replicas.IssueReplica(certs.Replica{Cell: "foo", ID: "r2"}, time.Hour)
	c.replicas.check(err)
	c.revoked = tls.Certificate{Certificate: [][]byte{made.Cert.Raw}, PrivateKey: made.Key}
	c.replicas.revoke(made.Cert)
	testbed.NoErr(t, testbed.ErrOf(c.ours.Refresh()))
	return c
}

// show is a certificate as it is shown in a handshake.
func (c *credentials) show(made certs.Pair, err error) []tls.Certificate {
	c.Helper()
	c.replicas.check(err)
	return []tls.Certificate{{Certificate: [][]byte{made.Cert.Raw}, PrivateKey: made.Key}}
}

func (c *credentials) replica(cell, id string) []tls.Certificate {
	c.Helper()
	return c.show(c.replicas.IssueReplica(certs.Replica{Cell: cell, ID: id}, time.Hour))
}

// impostors are the certificates that say of nobody that it is replica r2 of the cell foo; nil stands for no certificate.
func (c *credentials) impostors() map[string][]tls.Certificate {
	return map[string][]tls.Certificate{
		"no certificate":                          nil,
		"a replica's, of another authority":       c.show(newCertified(c.T).IssueReplica(certs.Replica{Cell: "foo", ID: "r2"}, time.Hour)),
		"a replica's, of the clients' authority":  c.show(c.clients.IssueReplica(certs.Replica{Cell: "foo", ID: "r2"}, time.Hour)),
		"an expired one":                          c.show(c.replicas.IssueReplica(certs.Replica{Cell: "foo", ID: "r2"}, -time.Minute)),
		"a revoked one":                           {c.revoked},
		"a client's":                              c.show(c.clients.IssueClient("r2", time.Hour)),
		"a client's, of the replicas' authority":  c.show(c.replicas.IssueClient("r2", time.Hour)),
		"a server's":                              c.show(c.clients.IssueServer([]string{"r2"}, time.Hour)),
		"a server's, of the replicas' authority":  c.show(c.replicas.IssueServer([]string{"r2"}, time.Hour)),
		"another member's":                        c.replica("foo", "r3"),
		"a removed member's":                      c.replica("foo", "gone"),
		"that of r2 of another cell":              c.replica("bar", "r2"),
		"that of the replica which it talks with": c.replica("foo", "r1"),
	}
}

// rosterWithALoss is the identity of a member of the cell foo, of which a replica was removed.
func rosterWithALoss(id string) identity.Replica {
	me := memberOf("foo-id", id, id+"-first")
	me.Roster.Members = append(me.Roster.Members, identity.Member{ID: "gone", Incarnation: "gone-first", Left: true})
	return me
}

// newDoor opens the Raft port of r1.
func (c *credentials) newDoor(wire *memnet.Network) (*Port, *testbed.Lines) {
	me := rosterWithALoss("r1")
	port, log := newTestPort(wire, "foo", "r1", having(c.ours), func(cfg *PortConfig) {
		cfg.Passport = NewPassport(func() identity.Replica { return me }, 7, func(error) {}, testbed.Clock(), slog.New(slog.DiscardHandler))
		cfg.Bootstrap = func() BootstrapReport { return BootstrapReport{ID: "r1", Roster: me.Roster, Begun: true} }
	})
	port.AnswerProbes(func() Report { return Report{Term: 3} })
	return port, log
}

// say connects with r1, says something, and returns all that is answered before the connection ends, or a second has passed.
func (c *credentials) say(wire *memnet.Network, config *tls.Config, words []byte) []byte {
	c.Helper()
	conn, err := wire.Dialer("stranger")("r1", time.Second)
	c.replicas.check(err)
	defer func() { _ = conn.Close() }()
	if config != nil {
		conn = tls.Client(conn, config)
	}
	late := time.AfterFunc(time.Second, func() { _ = conn.Close() })
	defer late.Stop()
	if _, err := conn.Write(words); err != nil {
		return nil
	}
	answer, _ := io.ReadAll(conn)
	if config == nil && len(answer) > 0 && answer[0] == 21 { // an alert of TLS, which says that it is spoken here
		return nil
	}
	return answer
}

func showing(own []tls.Certificate) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, Certificates: own, MinVersion: tls.VersionTLS13}
}

// greetings are what strangers begin with: a hello of each kind of connection, of one that does not exist, and the protocols of
// the other ports, with a token.
func greetings(t *testing.T) map[string][]byte {
	list := map[string][]byte{
		"HTTP/1.1": []byte("GET /metrics HTTP/1.1\r\nHost: r1\r\nAuthorization: Bearer token\r\n\r\n" + strings.Repeat("x", helloSize)),
		"gRPC":     []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\x00", helloSize)),
		"a token":  []byte("token" + strings.Repeat("\x00", helloSize)),
		"nothing":  nil,
	}
	for kind, row := range streamKinds() {
		list[row.name] = encoded(t, member(kind), 0, helloMagic[0])
	}
	list["a kind that does not exist"] = encoded(t, member(77), 0, helloMagic[0])
	return list
}

// member is the hello of r2 as it should be.
func member(kind helloKind) hello {
	return hello{kind: kind, cell: "foo", from: "r2", to: "r1", client: "r2.client", cellID: "foo-id", incarnation: "r2-first", last: 9}
}

// A caller of the Raft port that has no certificate of the replica which it says that it is gets no answer, whatever kind
// of connection it asks for, and whatever else it says.
func TestStrangersAreToldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, wire := newCredentials(t), memnet.New()
		port, log := c.newDoor(wire)
		defer port.close()
		for greeting, words := range greetings(t) {
			callers := map[string]*tls.Config{"no TLS": nil}
			for who, own := range c.impostors() {
				callers[who] = showing(own)
			}
			for who, config := range callers {
				testbed.Pass(2 * loglimit.Every)
				log.Take()
				if answer := c.say(wire, config, words); len(answer) > 0 {
					t.Errorf("%s, with %s, is answered %q", who, greeting, answer)
				}
				synctest.Wait()
				logged := "refused a connection"
				if len(words) == 0 {
					logged = "ended before it said whose it is"
				}
				if lines := log.Take(); len(lines) != 1 || !strings.Contains(lines[0], logged) {
					t.Errorf("%s, with %s, is logged as %q", who, greeting, lines)
				}
			}
		}
		c.nobodyWasLetIn(port)
	})
}

// nobodyWasLetIn checks that no connection reached Raft, and none is left.
func (c *credentials) nobodyWasLetIn(port *Port) {
	c.Helper()
	select {
	case <-port.streams:
		c.Error("a connection reached Raft")
	default:
	}
	port.mu.Lock()
	defer port.mu.Unlock()
	if len(port.conns) > 0 || len(port.half) > 0 || len(port.clients) > 0 {
		c.Errorf("%d connections are left, %d of them half open, and the addresses %v", len(port.conns), len(port.half), port.clients)
	}
}

// A replica with a certificate that counts, and no right to what it asks for, is told why, and nothing else; what another cell's
// replica is told has nothing of this cell but the name.
func TestReplicasWithoutTheRight(t *testing.T) {
	for name, one := range map[string]struct {
		cell, id string // of the certificate
		edit     func(*hello)
		verdict  helloVerdict
		anyone   helloVerdict // of the connections that anyone may have
	}{
		"a member":                       {"foo", "r2", func(*hello) {}, helloAccepted, helloAccepted},
		"another cell's replica":         {"bar", "r2", func(h *hello) { h.cell = "bar" }, helloWrongCell, helloWrongCell},
		"one that looks for another":     {"foo", "r2", func(h *hello) { h.to = "r3" }, helloWrongReplica, helloWrongReplica},
		"one of the same ID":             {"foo", "r1", func(h *hello) { h.from = "r1" }, helloSameID, helloSameID},
		"one that was never added":       {"foo", "r9", func(h *hello) { h.from = "r9" }, helloWrongReplica, helloAccepted},
		"one that was removed":           {"foo", "gone", func(h *hello) { h.from, h.incarnation = "gone", "gone-first" }, helloLeft, helloAccepted},
		"one with another directory":     {"foo", "r2", func(h *hello) { h.incarnation = "r2-new" }, helloAmnesia, helloAccepted},
		"one of a cell of the same name": {"foo", "r2", func(h *hello) { h.cellID = "other" }, helloOtherCell, helloAccepted},
		"one that has not begun":         {"foo", "r2", func(h *hello) { h.cellID = "" }, helloNoCell, helloAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, wire := newCredentials(t), memnet.New()
				port, _ := c.newDoor(wire)
				defer port.close()
				for kind, row := range streamKinds() {
					want := one.verdict
					if row.anyone {
						want = one.anyone
					}
					h := member(kind)
					one.edit(&h)
					answer := c.say(wire, showing(c.replica(one.cell, one.id)), append(encoded(t, h, 0, helloMagic[0]), make([]byte, questionSize)...))
					got, err := decodeHello(answer[:min(len(answer), helloSize)])
					if err != nil || got.verdict != want {
						t.Errorf("%s: the answer is %+v, %v, want the verdict %d", row.name, got, err, want)
					}
					if want != helloAccepted && len(answer) > helloSize {
						t.Errorf("%s: it is told %q besides", row.name, answer[helloSize:])
					}
					if bare := (hello{kind: kind, verdict: want, cell: "foo", from: "r1", to: h.from}); want == helloWrongCell && got != bare {
						t.Errorf("%s: it is told %+v", row.name, got)
					}
					if want == helloAccepted && kind != raftStream && len(answer) <= helloSize {
						t.Errorf("%s: it is let in, and is not answered", row.name)
					}
				}
				if one.verdict != helloAccepted {
					synctest.Wait()
					c.nobodyWasLetIn(port)
				}
			})
		})
	}
}

// A stranger who answers at a member's address without a certificate of that member does not learn who calls, on any
// kind of connection.
func TestImpostorsAreToldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, wire := newCredentials(t), memnet.New()
		port, _ := c.newDoor(wire)
		defer port.close()
		impostors := c.impostors()
		delete(impostors, "no certificate") // with which nobody can answer
		impostors["the right one"] = c.replica("foo", "r2")
		address := wire.Listen("r2")
		defer func() { _ = address.Close() }()
		for who, own := range impostors {
			for kind, row := range streamKinds() {
				heard := make(chan []byte, 1)
				go func() { heard <- hear(address, showing(own)) }()
				conn, err := port.dial(kind, "r2", "r2", time.Second)
				if err == nil {
					_ = conn.Close()
					t.Errorf("%s: %s is taken for r2", row.name, who)
				}
				if words := <-heard; (len(words) > 0) != (who == "the right one") {
					t.Errorf("%s: %s is told %q", row.name, who, words)
				}
			}
		}
	})
}

// hear accepts one connection, and returns the first of what is said on it.
func hear(at net.Listener, config *tls.Config) []byte {
	conn, err := at.Accept()
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	config = config.Clone()
	config.ClientAuth = tls.RequestClientCert
	encrypted := tls.Server(conn, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return nil
	}
	words := make([]byte, helloSize)
	n, _ := encrypted.Read(words)
	return slices.Clip(words[:n])
}

// certified makes certificates of replicas of a cell.
type certified struct {
	t   *testing.T
	dir string
	certs.Pair
}

func newCertified(t *testing.T) certified {
	made, err := certs.NewAuthority("test", 24*time.Hour)
	c := certified{t: t, dir: t.TempDir(), Pair: made}
	c.check(err)
	c.check(made.Write(c.file("ca.crt"), c.file("ca.key")))
	c.revoke()
	return c
}

func (c certified) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c certified) file(name string) string { return filepath.Join(c.dir, name) }

func (c certified) revoke(revoked ...*x509.Certificate) {
	c.t.Helper()
	der, err := c.Revoke(nil, revoked...)
	c.check(err)
	c.check(os.WriteFile(c.file("ca.crl"), pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), 0o600))
}

// store has a certificate, and those of this authority for its peers.
func (c certified) store(made certs.Pair, err error) *certs.Store {
	c.t.Helper()
	c.check(err)
	dir := c.t.TempDir()
	f := certs.Files{Cert: filepath.Join(dir, "own.crt"), Key: filepath.Join(dir, "own.key"), CA: c.file("ca.crt"), CRL: c.file("ca.crl")}
	c.check(made.Write(f.Cert, f.Key))
	s, err := certs.Open(f)
	c.check(err)
	return s
}

func (c certified) replica(cell, id string) *certs.Store {
	c.t.Helper()
	return c.store(c.IssueReplica(certs.Replica{Cell: cell, ID: id}, time.Hour))
}

func having(s *certs.Store) func(*PortConfig) {
	return func(cfg *PortConfig) { cfg.Certificates = s }
}

// A replica whose certificate is revoked is cut off, and one whose certificate expires is not.
func TestRecheckOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t)
		wire := memnet.New()
		mine := c.replica("foo", "r1")
		port, _ := newTestPort(wire, "foo", "r1", having(mine))
		defer port.close()
		theirs := c.store(c.IssueReplica(certs.Replica{Cell: "foo", ID: "r2"}, time.Second))
		caller, _ := newTestPort(wire, "foo", "r2", having(theirs))
		defer caller.close()
		conn, err := caller.dial(raftStream, "r1", "r1", time.Second)
		c.check(err)
		synctest.Wait()
		time.Sleep(2 * time.Second)
		if n := port.Recheck(); n != 0 {
			t.Errorf("%d connections are closed after the certificates have expired", n)
		}
		c.revoke(theirs.Own())
		testbed.NoErr(t, testbed.ErrOf(mine.Refresh()))
		if n := port.Recheck(); n != 1 {
			t.Errorf("%d connections are closed, want 1", n)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is not broken")
		}
	})
}
