package peer

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/loglimit"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/internal/certs"
)

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

// Replicas are connected if each is who it says, by a certificate that counts.
func TestCertificatesOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := newCertified(t), newCertified(t)
		wire := testbed.NewNetwork()
		revoked, ours := c.replica("foo", "r2"), c.replica("foo", "r1")
		c.revoke(revoked.Own())
		if _, err := ours.Refresh(); err != nil {
			t.Fatal(err)
		}
		called, log := newTestPort(wire, "foo", "r1", having(ours), func(cfg *PortConfig) { cfg.Bootstrap = func() BootstrapReport { return BootstrapReport{} } })
		defer called.close()
		for name, caller := range map[string]struct {
			certificates *certs.Store
			call         string // whom it calls
			caller, log  string // what the caller is told, and the log of whom it calls
		}{
			"well":                        {certificates: c.replica("foo", "r2"), call: "r1"},
			"another replica's":           {certificates: c.replica("foo", "r3"), call: "r1", caller: "hello", log: "is that of chubby://foo/replica/r3"},
			"another cell's":              {certificates: c.replica("bar", "r2"), call: "r1", caller: "hello", log: "is that of chubby://bar/replica/r2"},
			"a client's":                  {certificates: c.store(c.IssueClient("r2", time.Hour)), call: "r1", caller: "hello", log: "names 0 replicas"},
			"of another authority":        {certificates: other.replica("foo", "r2"), call: "r1", caller: "does not count"},
			"expired":                     {certificates: c.store(c.IssueReplica(certs.Replica{Cell: "foo", ID: "r2"}, -time.Minute)), call: "r1", caller: "hello", log: "expired"},
			"revoked":                     {certificates: revoked, call: "r1", caller: "hello", log: "revoked"},
			"none":                        {call: "r1", caller: "hello", log: "first record does not look like a TLS handshake"},
			"of one who calls by its own": {certificates: c.replica("foo", "r2"), call: "r4", caller: "is that of chubby://foo/replica/r1"},
		} {
			for _, kind := range []helloKind{raftStream, probeStream, bootstrapStream} {
				testbed.Pass(2 * loglimit.Every)
				log.Take()
				port, _ := newTestPort(wire, "foo", "r2", having(caller.certificates))
				conn, err := port.dial(kind, caller.call, "r1", time.Second)
				if caller.caller == "" && err != nil || caller.caller != "" && (err == nil || !strings.Contains(err.Error(), caller.caller)) {
					t.Errorf("%s, %d: the caller is told %v, want %q", name, kind, err, caller.caller)
				}
				if err == nil {
					_ = conn.Close()
				}
				synctest.Wait()
				if text := strings.Join(log.Take(), ""); caller.log != "" && !strings.Contains(text, caller.log) {
					t.Errorf("%s, %d: it is logged %q, want %q", name, kind, text, caller.log)
				}
				port.close()
			}
		}
	})
}

// A caller that another authority has certified, and believes any replica, is told nothing.
func TestUncertifiedCallerIsToldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := newCertified(t), newCertified(t)
		wire := testbed.NewNetwork()
		port, log := newTestPort(wire, "foo", "r1", having(c.replica("foo", "r1")))
		defer port.close()
		made, err := other.IssueReplica(certs.Replica{Cell: "foo", ID: "r2"}, time.Hour)
		c.check(err)
		for name, own := range map[string][]tls.Certificate{"another's": {{Certificate: [][]byte{made.Cert.Raw}, PrivateKey: made.Key}}, "none": nil} {
			testbed.Pass(2 * loglimit.Every)
			log.Take()
			conn, err := wire.Dialer("r2")("r1", time.Second)
			c.check(err)
			encrypted := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, Certificates: own, MinVersion: tls.VersionTLS13})
			if _, err := encrypted.Write(encoded(t, hello{kind: raftStream, cell: "foo", from: "r2", to: "r1"}, 0, 'c')); err != nil {
				t.Fatal(err)
			}
			if n, err := encrypted.Read(make([]byte, 1)); n > 0 {
				t.Errorf("%s: it is answered, %v", name, err)
			}
			synctest.Wait()
			if text := strings.Join(log.Take(), ""); !strings.Contains(text, "does not count") && !strings.Contains(text, "no certificate was shown") {
				t.Errorf("%s: it is logged %q", name, text)
			}
			_ = conn.Close()
		}
	})
}

// A replica whose certificate is revoked is cut off, and one whose certificate expires is not.
func TestRecheckOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t)
		wire := testbed.NewNetwork()
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
		if _, err := mine.Refresh(); err != nil {
			t.Fatal(err)
		}
		if n := port.Recheck(); n != 1 {
			t.Errorf("%d connections are closed, want 1", n)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is not broken")
		}
	})
}
