package peer

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/memnet"
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
