package cell_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/internal/frames"
)

// authority signs certificates, and writes them into a directory.
type authority struct {
	certs.Pair
	t    testing.TB
	file string // where its certificate is
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	made, err := certs.NewAuthority("test", 24*time.Hour)
	a := authority{Pair: made, t: t, file: filepath.Join(t.TempDir(), "ca.crt")}
	a.check(err)
	a.check(a.Write(a.file, strings.TrimSuffix(a.file, "crt")+"key"))
	return a
}

func (a authority) check(err error) {
	a.t.Helper()
	noErr(a.t, err)
}

// put writes a certificate. The other side's certificates are signed by another authority, if that is not nil.
func (a authority) put(made certs.Pair, err error) certs.Files {
	a.t.Helper()
	a.check(err)
	dir := a.t.TempDir()
	f := certs.Files{Cert: filepath.Join(dir, "own.crt"), Key: filepath.Join(dir, "own.key"), CA: a.file}
	a.check(made.Write(f.Cert, f.Key))
	return f
}

func (a authority) client(principal string) certs.Files {
	a.t.Helper()
	return a.put(a.IssueClient(principal, time.Hour))
}

// revoke writes a revocation list.
func (a authority) revoke(file string, revoked ...string) {
	a.t.Helper()
	var list []*x509.Certificate
	for _, name := range revoked {
		text, err := os.ReadFile(name)
		a.check(err)
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		a.check(err)
		list = append(list, cert)
	}
	der, err := a.Revoke(nil, list...)
	a.check(err)
	a.check(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), 0o600))
}

// tlsCell is a cell with certificates.
type tlsCell struct {
	*celltest.Cell
	clients, replicas authority
	crl               string // of clients
}

// as returns a client with the certificate of a principal.
func (c tlsCell) as(t *testing.T, ctx context.Context, principal string) *client.Client {
	t.Helper()
	return dial(t, ctx, c.Cell, principal, client.Config{TLS: c.clients.client(principal)})
}

// inTLSCell runs a test in a bubble, with a cell of that many replicas with certificates.
func inTLSCell(t *testing.T, replicas int, test func(t *testing.T, ctx context.Context, c tlsCell), edits ...func(*cell.Config)) {
	t.Helper()
	inBubble(t, 30*time.Minute, func(t *testing.T, ctx context.Context) {
		c := tlsCell{clients: newAuthority(t), replicas: newAuthority(t), crl: filepath.Join(t.TempDir(), "ca.crl")}
		c.clients.revoke(c.crl)
		c.Cell = celltest.Start(t, replicas, append([]func(*cell.Config){func(cfg *cell.Config) {
			cfg.InsecurePrincipals = false
			cfg.ClientTLS = c.clients.put(c.clients.IssueServer([]string{cfg.ID}, time.Hour))
			cfg.ClientTLS.CRL = c.crl
			cfg.PeerTLS = c.replicas.put(c.replicas.IssueReplica(certs.Replica{Cell: cfg.Cell, ID: cfg.ID}, time.Hour))
		}}, edits...)...)
		test(t, ctx, c)
	})
}

// A client is who its certificate says, before and after the death of a master.
func TestTLS(t *testing.T) {
	inTLSCell(t, 3, func(t *testing.T, ctx context.Context, c tlsCell) {
		cl := dial(t, ctx, c.Cell, "alice", client.Config{TLS: c.clients.client("spiffe://test/alice")})
		acquire(t, ctx, open(t, ctx, cl, "/ls/local/lock", 0))
		c.FailOver()
		sessions, err := cl.Cell().Sessions(ctx)
		if err != nil || len(sessions) != 1 || sessions[0].Principal != "spiffe://test/alice" {
			t.Errorf("the sessions are %+v, %v", sessions, err)
		}
		other := c.as(t, ctx, "bob")
		fails(t, errOf(open(t, ctx, other, "/ls/local/lock", 0).TryAcquire(ctx, api.Exclusive)), api.LockHeld, "the lock")
	})
}

// The cell refuses callers without a valid certificate, with a reason, and tells them nothing else; also while other replicas are down.
func TestTLSRefusesStrangers(t *testing.T) {
	inTLSCell(t, 3, func(t *testing.T, ctx context.Context, c tlsCell) {
		other := newAuthority(t)
		with := func(f certs.Files) certs.Files {
			f.CA = c.clients.file // so that the client believes the servers
			return f
		}
		revoked := c.clients.client("revoked")
		c.clients.revoke(c.crl, revoked.Cert)
		time.Sleep(6 * time.Second)
		asReplica := c.clients.put(c.clients.IssueReplica(certs.Replica{Cell: "local", ID: "r1"}, time.Hour))
		strangers := map[string]struct {
			files certs.Files
			as    string
			want  string
		}{
			"no TLS":                             {want: "not encrypted"},
			"no certificate":                     {files: certs.Files{CA: c.clients.file}, want: "no certificate was shown"},
			"of another authority":               {files: with(other.client("alice")), want: "does not count"},
			"of the replicas' authority":         {files: with(c.replicas.client("alice")), want: "does not count"},
			"a replica's":                        {files: with(c.replicas.put(c.replicas.IssueReplica(certs.Replica{Cell: "local", ID: "r1"}, time.Hour))), want: "does not count"},
			"a replica's, of clients' authority": {files: asReplica, want: "that of a replica"},
			"a server's":                         {files: c.clients.put(c.clients.IssueServer([]string{"r1"}, time.Hour)), want: "does not count"},
			"expired":                            {files: c.clients.put(c.clients.IssueClient("alice", -time.Minute)), want: "expired"},
			"revoked":                            {files: revoked, want: "revoked"},
			"a name that is too long":            {files: c.clients.client("spiffe://test/" + strings.Repeat("x", api.MaxPrincipal)), want: "cannot be a principal"},
			"another name":                       {files: c.clients.client("alice"), as: "bob", want: `its certificate says "alice"`},
			"servers of another authority":       {files: other.client("alice"), want: "not who it should be"},
		}
		for _, down := range []string{"nobody", "r2", "r3"} { // then no master is left
			if down != "nobody" {
				c.Kill(down)
			}
			for name, one := range strangers {
				if down == "r3" && one.as != "" {
					continue // whose name it is, the master says
				}
				began := time.Now()
				_, err := client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("stranger"), Clock: celltest.Clock, TLS: one.files, As: one.as})
				if !errors.Is(err, api.Unauthenticated) || !strings.Contains(err.Error(), one.want) {
					t.Errorf("%s, down is %s: got %v, want %q", name, down, err, one.want)
				}
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("%s, down is %s: after %v", name, down, took)
				}
			}
		}
	})
}

// Those who are connected are cut off when their certificates are revoked.
func TestTLSCutsOff(t *testing.T) {
	for name, end := range map[string]func(c tlsCell, files certs.Files){
		"revoked": func(c tlsCell, files certs.Files) { c.clients.revoke(c.crl, files.Cert) },
		"another authority": func(c tlsCell, _ certs.Files) {
			text := must(os.ReadFile(newAuthority(c.clients.t).file))(t)
			c.clients.check(os.WriteFile(c.clients.file, text, 0o600))
			c.clients.check(os.WriteFile(c.crl, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTLSCell(t, 1, func(t *testing.T, ctx context.Context, c tlsCell) {
				files := c.clients.client("alice")
				cl := dial(t, ctx, c.Cell, "alice", client.Config{TLS: files})
				h := open(t, ctx, cl, "/ls/local/file", 0)
				end(c, files)
				time.Sleep(6 * time.Second)
				limit, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				failIf(t, errOf(h.SetContents(limit, []byte("x"))) == nil, "it may write")
			}, func(cfg *cell.Config) {
				if name == "another authority" {
					cfg.ClientTLS.CRL = "" // its lists are of the authority that goes
				}
			})
		})
	}
}

// link connects with the master as a program would that has its certificate and no library.
func (c tlsCell) link(t *testing.T, ctx context.Context, files certs.Files) *frames.Link {
	t.Helper()
	store := must(certs.Open(files))(t)
	conn := must(c.Dial(ctx, c.Master()+":7421"))(t)
	encrypted := tls.Client(conn, store.Client(c.Master(), nil))
	l := must(frames.Open(ctx, encrypted, frames.LinkConfig{Times: frames.Times{Ping: time.Minute, Timeout: time.Minute}, MaxReply: 2 * api.MaxMessage}))(t)
	t.Cleanup(func() { l.Close(); l.Wait() })
	return l
}

// A connection in use is cut off when its certificate expires, within seconds. A stranger who begins a handshake, and says no more, does
// not stay.
func TestTLSCutsOffTheExpired(t *testing.T) {
	inTLSCell(t, 1, func(t *testing.T, ctx context.Context, c tlsCell) {
		short, long := c.link(t, ctx, c.clients.put(c.clients.IssueClient("alice", 20*time.Second))), c.link(t, ctx, c.clients.client("alice"))
		for began := time.Now(); time.Since(began) < 19*time.Second; time.Sleep(time.Second) {
			for _, l := range []*frames.Link{short, long} {
				noErr(t, errOf(pb.NewCellClient(l).Locate(ctx, &pb.LocateRequest{Cell: "local"})), time.Since(began))
			}
		}
		time.Sleep(7 * time.Second)
		if _, err := pb.NewCellClient(short).Locate(ctx, &pb.LocateRequest{Cell: "local"}); err == nil {
			t.Error("it is served after its certificate has expired")
		}
		report(t, errOf(pb.NewCellClient(long).Locate(ctx, &pb.LocateRequest{Cell: "local"})), "another is cut off, too")

		for name, first := range map[string][]byte{"nothing": nil, "a byte": {22}, "half a record": {22, 3, 1, 2, 0, 1}} {
			conn := must(c.DialFrom("stranger")(ctx, c.Master()+":7421"))(t)
			must(conn.Write(first))(t)
			began := time.Now()
			_, _ = io.ReadAll(conn) // ends when the replica closes it
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("%s: it stays for %v", name, took)
			}
			_ = conn.Close()
		}
	})
}
