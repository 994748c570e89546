package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// must returns a value that there is.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

const day = 24 * time.Hour

// kit is an authority and its files.
type kit struct {
	dir string
	Pair
}

func newKit(t *testing.T) kit {
	k := kit{dir: t.TempDir(), Pair: must(NewAuthority("test", time.Hour))(t)}
	must(0, k.Write(k.file("ca.crt"), k.file("ca.key")))(t)
	return k
}

func (k kit) file(name string) string { return filepath.Join(k.dir, name) }

// put writes a pair, and returns its files.
func (k kit) put(t *testing.T, name string, p Pair) Files {
	f := Files{Cert: k.file(name + ".crt"), Key: k.file(name + ".key"), CA: k.file("ca.crt")}
	must(0, p.Write(f.Cert, f.Key))(t)
	return f
}

func (k kit) client(t *testing.T, principal string) Pair {
	return must(k.IssueClient(principal, time.Hour))(t)
}

func (k kit) revoke(t *testing.T, certs ...*x509.Certificate) {
	der := must(k.Revoke(nil, certs...))(t)
	must(0, os.WriteFile(k.file("ca.crl"), pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), 0o600))(t)
}

// A certificate counts if the authority has signed it for this use, its time has come and is not over,
// and nobody has revoked it.
func TestCheck(t *testing.T) {
	k, other := newKit(t), newKit(t)
	mine, revoked := k.client(t, "mine"), k.client(t, "revoked")
	k.revoke(t, revoked.Cert)
	s := must(Open(Files{CA: k.file("ca.crt"), CRL: k.file("ca.crl")}))(t)
	self := must(Pair{}.sign(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, time.Hour))(t)
	for name, c := range map[string]struct {
		chain []*x509.Certificate
		use   x509.ExtKeyUsage
		after time.Duration
		want  string
	}{
		"good":                 {chain: []*x509.Certificate{mine.Cert}},
		"nothing":              {want: "no certificate was shown"},
		"of another authority": {chain: []*x509.Certificate{other.client(t, "mine").Cert}, want: "unknown authority"},
		"with that authority":  {chain: []*x509.Certificate{other.client(t, "mine").Cert, other.Cert}, want: "unknown authority"},
		"signed by itself":     {chain: []*x509.Certificate{self.Cert}, want: "unknown authority"},
		"revoked":              {chain: []*x509.Certificate{revoked.Cert}, want: "was revoked"},
		"of a server":          {chain: []*x509.Certificate{must(k.IssueServer([]string{"h"}, time.Hour))(t).Cert}, want: "incompatible key usage"},
		"expired":              {chain: []*x509.Certificate{mine.Cert}, after: 2 * time.Hour, want: "expired"},
		"not yet":              {chain: []*x509.Certificate{mine.Cert}, after: -time.Hour, want: "not yet valid"},
	} {
		t.Run(name, func(t *testing.T) {
			s.now = func() time.Time { return time.Now().Add(c.after) }
			_, err := s.Check(c.chain, x509.ExtKeyUsageClientAuth)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Files that have changed are read again; what is wrong with them leaves what was read before in use.
func TestRefresh(t *testing.T) {
	k := newKit(t)
	c := k.client(t, "c")
	k.revoke(t)
	s := must(Open(Files{CA: k.file("ca.crt"), CRL: k.file("ca.crl")}))(t)
	check := func(want string) {
		t.Helper()
		_, err := s.Check([]*x509.Certificate{c.Cert}, x509.ExtKeyUsageClientAuth)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	check("")
	if must(s.Refresh())(t) {
		t.Error("nothing has changed")
	}
	k.revoke(t, c.Cert)
	if check(""); !must(s.Refresh())(t) {
		t.Error("the list has changed")
	}
	check("was revoked")
	must(0, os.WriteFile(k.file("ca.crl"), []byte("nothing"), 0o600))(t)
	for range 2 { // also a second time
		if changed, err := s.Refresh(); changed || err == nil || !strings.Contains(err.Error(), "ca.crl has no block") {
			t.Errorf("got %v, %v", changed, err)
		}
	}
	check("was revoked")
	k.revoke(t)
	must(s.Refresh())(t)
	check("")
	must(0, os.Remove(k.file("ca.crt")))(t)
	if _, err := s.Refresh(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	check("")
}

// The error of files that are wrong names the one that is.
func TestOpenFaults(t *testing.T) {
	k, other := newKit(t), newKit(t)
	one, two := k.put(t, "one", k.client(t, "one")), k.put(t, "two", k.client(t, "two"))
	other.revoke(t)
	for name, c := range map[string]struct {
		files Files
		want  string
	}{
		"no file":                     {Files{CA: k.file("none")}, "none"},
		"another's key":               {Files{Cert: one.Cert, Key: two.Key}, "one.crt with key"},
		"no key":                      {Files{Cert: one.Cert}, "one.crt with key"},
		"a key for an authority":      {Files{CA: one.Key}, "one.key has no block"},
		"a client's for an authority": {Files{CA: one.Cert}, "is not that of an authority"},
		"another authority's list":    {Files{CA: k.file("ca.crt"), CRL: other.file("ca.crl")}, "signed by none"},
		"a directory":                 {Files{CA: k.dir}, "is a directory"},
	} {
		if _, err := Open(c.files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	k := newKit(t)
	for _, c := range []struct {
		uris, dns []string
		principal string
		replica   Replica
	}{
		{uris: []string{"spiffe://acme/billing"}, principal: "spiffe://acme/billing"},
		{uris: []string{"spiffe://acme/ns/shop/sa/cart_1"}, principal: "spiffe://acme/ns/shop/sa/cart_1"},
		{uris: []string{"spiffe://acme/billing", "https://acme"}, dns: []string{"a", "b"}, principal: "spiffe://acme/billing"},
		{uris: []string{"spiffe://acme/a", "spiffe://acme/b"}, dns: []string{"a"}},
		// They would be read as another, or as one of another kind.
		{uris: []string{"spiffe://acme/billing#"}, dns: []string{"a"}},
		{uris: []string{"spiffe://acme/billing?"}},
		{uris: []string{"SPIFFE://acme/billing"}},
		{uris: []string{"spiffe://ACME/billing"}},
		{uris: []string{"spiffe://acme/a%20b"}},
		{uris: []string{"spiffe://acme/a b"}},
		{uris: []string{"spiffe://u@acme/a"}},
		{uris: []string{"spiffe://acme:1/a"}},
		{uris: []string{"spiffe://acme"}},
		{uris: []string{"spiffe:///acme"}},
		{uris: []string{"spiffe:acme"}},
		{dns: []string{"billing.acme"}, principal: "billing.acme"},
		{dns: []string{"a", "b"}},
		{dns: []string{"spiffe://acme/admin"}},
		{dns: []string{"*"}},
		{dns: []string{"*.acme"}},
		{dns: []string{"a..b"}},
		{},
		{uris: []string{"chubby://main/replica/r1"}, dns: []string{"r1"}, replica: Replica{"main", "r1"}},
		{uris: []string{"CHUBBY://main/replica/r1"}, dns: []string{"r1"}},
		{uris: []string{"chubby://main/replica/r1", "chubby://main/replica/r2"}},
		{uris: []string{"chubby://main/replica/r1?x=y"}},
		{uris: []string{"chubby://u@main/replica/r1"}},
		{uris: []string{"chubby://main/replica/"}},
		{uris: []string{"chubby://main/client/r1"}},
		{uris: []string{"http://main/replica/r1"}},
	} {
		template := &x509.Certificate{DNSNames: c.dns}
		for _, text := range c.uris {
			template.URIs = append(template.URIs, &url.URL{Opaque: text}) // written as it stands
		}
		cert := must(k.sign(template, time.Hour))(t).Cert
		if got, err := PrincipalOf(cert); got != c.principal || (err == nil) != (got != "") {
			t.Errorf("%+v: principal %q, %v", c, got, err)
		}
		if got, err := ReplicaOf(cert); got != c.replica || (err == nil) != (got != Replica{}) {
			t.Errorf("%+v: replica %v, %v", c, got, err)
		}
	}
}

// A client is connected with a server only if the server's certificate is for the host dialled, and
// takes new files with the next connection.
func TestHandshake(t *testing.T) {
	k := newKit(t)
	server := k.put(t, "server", must(k.IssueServer([]string{"h1", "127.0.0.1"}, time.Hour))(t))
	client := k.put(t, "client", k.client(t, "c"))
	serving, calling := must(Open(server))(t), must(Open(client))(t)
	connect := func(host string, accept func(*x509.Certificate, Proof) error) (principal string, err error) {
		l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer l.Close()
		a := must(net.Dial("tcp", l.Addr().String()))(t)
		defer a.Close()
		called := serving.Accept(must(l.Accept())(t))
		done := make(chan error, 1)
		go func() {
			defer called.Close()
			err := called.Handshake()
			if err == nil {
				_, err = called.Write([]byte("x"))
			}
			done <- err
		}()
		conn := tls.Client(a, calling.Client(host, accept))
		_, err = io.ReadFull(conn, make([]byte, 1))
		_ = a.Close()
		if <-done == nil && err == nil {
			principal, err = PrincipalOf(called.ConnectionState().PeerCertificates[0])
		}
		return principal, err
	}
	for _, host := range []string{"h1", "127.0.0.1", ""} {
		if p, err := connect(host, nil); p != "c" || err != nil {
			t.Errorf("%q: %q, %v", host, p, err)
		}
	}
	if _, err := connect("h2", nil); err == nil || !strings.Contains(err.Error(), "h2") {
		t.Errorf("another host: %v", err)
	}
	refusal := errors.New("not that one")
	if _, err := connect("h1", func(*x509.Certificate, Proof) error { return refusal }); !errors.Is(err, refusal) {
		t.Errorf("refused by the caller: %v", err)
	}
	must(0, errors.Join(os.Remove(server.Cert), os.Remove(server.Key)))(t)
	k.put(t, "server", must(k.IssueServer([]string{"h2"}, time.Hour))(t))
	must(serving.Refresh())(t)
	if p, err := connect("h2", nil); p != "c" || err != nil {
		t.Errorf("after new files: %q, %v", p, err)
	}
	other := newKit(t)
	must(0, os.Remove(k.file("ca.crt")))(t)
	must(0, os.WriteFile(k.file("ca.crt"), must(os.ReadFile(other.file("ca.crt")))(t), 0o600))(t)
	must(calling.Refresh())(t)
	if _, err := connect("h2", nil); err == nil {
		t.Error("a server of an authority that was taken back is connected to")
	}
}

// A file that is written is for the owner's eyes, replaces nothing, and is read again.
func TestWrite(t *testing.T) {
	k := newKit(t)
	if about := must(os.Stat(k.file("ca.key")))(t); about.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v", about.Mode())
	}
	other := must(NewAuthority("other", time.Hour))(t)
	if err := other.Write(k.file("ca.crt"), k.file("ca.key")); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v", err)
	}
	if err := other.Write(k.file("ca.crt"), k.file("new.key")); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(k.file("new.key")); err == nil {
		t.Error("a key without its certificate is left")
	}
	if got := must(ReadPair(k.file("ca.crt"), k.file("ca.key")))(t); !bytes.Equal(got.Cert.Raw, k.Cert.Raw) {
		t.Error("another certificate is read")
	}
	for _, name := range []string{"spiffe://acme/x y", "spiffe://acme/%zz", "chubby://main/replica/r1"} {
		if _, err := k.IssueClient(name, time.Hour); err == nil && !strings.HasPrefix(name, "chubby") {
			t.Errorf("%s: a certificate is made", name)
		}
	}
}

// An issued certificate does not outlive its authority.
func TestLifetime(t *testing.T) {
	k := newKit(t)
	if c := must(k.IssueClient("c", 100*time.Hour))(t); c.Cert.NotAfter.After(k.Cert.NotAfter) {
		t.Errorf("%v, after %v", c.Cert.NotAfter, k.Cert.NotAfter)
	}
	if r := must(k.IssueReplica(Replica{"main", "r1"}, time.Hour))(t); must(ReplicaOf(r.Cert))(t) != (Replica{"main", "r1"}) {
		t.Error(r.Cert.URIs)
	}
}
