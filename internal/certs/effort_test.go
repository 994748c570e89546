package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// shown makes certificates as others do, who know more than this package.
type shown struct {
	t      *testing.T
	serial int64
}

// cert makes a certificate for a key, which another key signs in the name of an issuer.
func (s *shown) cert(subject, issuer string, key crypto.Signer, by crypto.Signer, edit ...func(*x509.Certificate)) *x509.Certificate {
	s.t.Helper()
	s.serial++
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(s.serial), Subject: pkix.Name{CommonName: subject}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		DNSNames: []string{fmt.Sprint("n", s.serial)}, BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	for _, one := range edit {
		one(c)
	}
	parent := &x509.Certificate{Subject: pkix.Name{CommonName: issuer}, IsCA: true, BasicConstraintsValid: true}
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by))(s.t)))(s.t)
}

func newKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	return must(ecdsa.GenerateKey(curve, rand.Reader))(t)
}

// storeOf returns a store with these authorities.
func storeOf(t *testing.T, authorities ...*x509.Certificate) *Store {
	t.Helper()
	return must(Open(Files{CA: authorityFile(t, authorities...)}))(t)
}

// quickest returns the shortest time that something has taken.
func quickest(do func()) time.Duration {
	least := time.Hour
	for range 5 {
		began := time.Now()
		do()
		least = min(least, time.Since(began))
	}
	return least
}

// A stranger's chain is refused before a signature is checked by a key of his: however many of his certificates might be the issuer of each
// other, and whatever they name.
func TestWhatStrangersShowIsNotTried(t *testing.T) {
	s := &shown{t: t}
	own := newKey(t, elliptic.P256())
	authority := s.cert("authority", "authority", own, own)
	store := storeOf(t, authority)
	key := newKey(t, elliptic.P384())
	digest := make([]byte, 48)
	signature := must(ecdsa.SignASN1(rand.Reader, key, digest))(t)
	check := quickest(func() { ecdsa.VerifyASN1(&key.PublicKey, digest, signature) })
	for name, issuer := range map[string]string{"of his own authority": "x", "in the name of the authority": "authority"} {
		chain := []*x509.Certificate{s.cert("leaf", issuer, key, key)}
		for len(chain) < maxChain {
			chain = append(chain, s.cert(issuer, issuer, key, key))
		}
		took := quickest(func() {
			if _, err := store.Check(chain, x509.ExtKeyUsageClientAuth); err == nil || !strings.Contains(err.Error(), "unknown authority") {
				t.Errorf("%s: %v", name, err)
			}
		})
		if took > 10*check {
			t.Errorf("%s: a chain of a stranger takes as long as %d signatures: %v", name, took/check, took)
		}
	}
}

// A chain counts as a path, up to the first certificate that an authority has signed.
func TestPaths(t *testing.T) {
	s := &shown{t: t}
	client := func(c *x509.Certificate) {
		c.IsCA, c.ExtKeyUsage = false, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	rootKey, newerKey, betweenKey, key := newKey(t, elliptic.P256()), newKey(t, elliptic.P384()), newKey(t, elliptic.P256()), newKey(t, elliptic.P256())
	root := s.cert("root", "root", rootKey, rootKey)
	newer := s.cert("root", "root", newerKey, newerKey)
	crossed := s.cert("root", "root", newerKey, rootKey) // the newer key, signed by the older one
	elsewhere := s.cert("root", "elsewhere", rootKey, newerKey)
	between := s.cert("between", "root", betweenKey, rootKey)
	again := s.cert("between", "between", betweenKey, betweenKey)
	other := s.cert("other", "root", key, rootKey)
	direct, indirect, newest := s.cert("direct", "root", key, rootKey, client), s.cert("indirect", "between", key, betweenKey, client), s.cert("newest", "root", key, newerKey, client)
	for name, c := range map[string]struct {
		authorities, chain []*x509.Certificate
		counts             bool
	}{
		"signed by the authority":                          {[]*x509.Certificate{root}, []*x509.Certificate{direct}, true},
		"with the authority":                               {[]*x509.Certificate{root}, []*x509.Certificate{direct, root}, true},
		"with another, which is not needed":                {[]*x509.Certificate{root}, []*x509.Certificate{direct, other, between}, true},
		"one between":                                      {[]*x509.Certificate{root}, []*x509.Certificate{indirect, between}, true},
		"one between, and the authority":                   {[]*x509.Certificate{root}, []*x509.Certificate{indirect, between, root}, true},
		"one between, and the authority signed by another": {[]*x509.Certificate{root}, []*x509.Certificate{indirect, between, elsewhere}, true},
		"one between that is an authority":                 {[]*x509.Certificate{between}, []*x509.Certificate{indirect, root}, true},
		"of two authorities of one name, the second":       {[]*x509.Certificate{newer, root}, []*x509.Certificate{direct}, true},
		"by way of the older key of an authority":          {[]*x509.Certificate{root}, []*x509.Certificate{newest, crossed}, true},
		"without the one between":                          {[]*x509.Certificate{root}, []*x509.Certificate{indirect}, false},
		"without the older key":                            {[]*x509.Certificate{root}, []*x509.Certificate{newest}, false},
		"in another order":                                 {[]*x509.Certificate{root}, []*x509.Certificate{indirect, other, between}, false},
		"one between twice":                                {[]*x509.Certificate{root}, []*x509.Certificate{indirect, again, between}, false},
		"another's key":                                    {[]*x509.Certificate{newer}, []*x509.Certificate{direct}, false},
	} {
		_, err := storeOf(t, c.authorities...).Check(c.chain, x509.ExtKeyUsageClientAuth)
		if (err == nil) != c.counts {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A handshake is broken off in which a certificate is shown that would take long to look at, or much memory as long as the connection is
// open; nobody's own certificate is such a one.
func TestHandshakeBreaksOff(t *testing.T) {
	k, s := newKit(t), &shown{t: t}
	serving := must(Open(k.put(t, "server", must(k.IssueServer([]string{"h"}, time.Hour))(t))))(t)
	many := make([]*url.URL, 2000)
	for i := range many {
		many[i] = &url.URL{Path: "a"}
	}
	for name, c := range map[string]struct {
		curve elliptic.Curve
		edit  func(*x509.Certificate)
		want  string
	}{
		"a quick key":         {elliptic.P256(), func(*x509.Certificate) {}, ""},
		"a key that may pass": {elliptic.P384(), func(*x509.Certificate) {}, ""},
		"a slow key":          {elliptic.P521(), func(*x509.Certificate) {}, "the curve P-521"},
		"very many names":     {elliptic.P256(), func(c *x509.Certificate) { c.URIs = many }, "names"},
	} {
		key := newKey(t, c.curve)
		cert := s.cert("stranger", "stranger", key, key, c.edit)
		near, far := net.Pipe()
		done := make(chan error, 1)
		go func() {
			conn := tls.Client(far, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}})
			_, err := conn.Read(make([]byte, 1)) // sends its certificate, and hears what comes of it
			done <- err
		}()
		err := serving.Accept(near).Handshake()
		_ = near.Close()
		<-done
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		f := k.put(t, strings.ReplaceAll(name, " ", "-"), Pair{Cert: cert, Key: key})
		if _, err := Open(f); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of one's own: %v, want %q", name, err, c.want)
		}
	}
}

// A key of the slowest curve is not exchanged, either.
func TestSlowKeysAreNotExchanged(t *testing.T) {
	k := newKit(t)
	serving := must(Open(k.put(t, "server", must(k.IssueServer([]string{"h"}, time.Hour))(t))))(t)
	for _, curve := range []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521} {
		near, far := net.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- tls.Client(far, &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{curve}}).Handshake()
			_ = far.Close()
		}()
		err := serving.Accept(near).Handshake()
		_ = near.Close()
		if err = errors.Join(err, <-done); (err == nil) != (curve != tls.CurveP521) {
			t.Errorf("%v: %v", curve, err)
		}
	}
}

// A chain that would take long to look at is refused, and quickly; one with a name that is long is not repeated.
func TestCheckIsQuick(t *testing.T) {
	k := newKit(t)
	c := k.client(t, "c")
	s := must(Open(Files{CA: k.file("ca.crt")}))(t)
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	with := func(template x509.Certificate, public any) *x509.Certificate {
		template.SerialNumber = big.NewInt(1)
		return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, &template, &x509.Certificate{}, public, key))(t)))(t)
	}
	odd := func(bits uint) *big.Int {
		n := must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), bits-1)))(t)
		return n.SetBit(n.SetBit(n, int(bits)-1, 1), 0, 1)
	}
	small := with(x509.Certificate{}, key.Public())
	for name, c := range map[string]struct {
		chain []*x509.Certificate
		want  string
	}{
		"many":             {append([]*x509.Certificate{c.Cert}, slices.Repeat([]*x509.Certificate{small}, maxChain)...), "at most"},
		"not many":         {append([]*x509.Certificate{c.Cert}, slices.Repeat([]*x509.Certificate{small}, maxChain-1)...), ""},
		"a long key":       {[]*x509.Certificate{c.Cert, with(x509.Certificate{}, &rsa.PublicKey{N: odd(8192), E: 3})}, "RSA key of 8192"},
		"a large exponent": {[]*x509.Certificate{c.Cert, with(x509.Certificate{}, &rsa.PublicKey{N: odd(2048), E: 1<<31 - 1})}, "exponent"},
		"a long name":      {[]*x509.Certificate{with(x509.Certificate{Subject: pkix.Name{CommonName: strings.Repeat("\x01", 200<<10)}, NotAfter: time.Now().Add(time.Hour)}, key.Public())}, "does not count"},
	} {
		_, err := s.Check(c.chain, x509.ExtKeyUsageClientAuth)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err != nil && len(err.Error()) > 8*maxText {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

// A handshake takes so many bytes, and no more.
func TestHandshakeIsBounded(t *testing.T) {
	k := newKit(t)
	serving := must(Open(k.put(t, "server", must(k.IssueServer([]string{"h"}, time.Hour))(t))))(t)
	client := k.client(t, "c")
	for length, want := range map[int]error{1 << 10: nil, (maxChain + 1) * len(k.Cert.Raw): errLongChain, maxHandshake: errLongHandshake} {
		shown := tls.Certificate{Certificate: [][]byte{client.Cert.Raw}, PrivateKey: client.Key}
		for size := 0; size < length; size += len(k.Cert.Raw) {
			shown.Certificate = append(shown.Certificate, k.Cert.Raw)
		}
		l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
		a := must(net.Dial("tcp", l.Addr().String()))(t)
		b := must(l.Accept())(t)
		_ = l.Close()
		done := make(chan error, 1)
		go func() {
			conn := tls.Client(a, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{shown}})
			_, err := conn.Write(make([]byte, 3*maxHandshake)) // what is said after it is not bounded
			done <- errors.Join(err, conn.Close())
		}()
		conn := serving.Accept(b)
		n, err := io.Copy(io.Discard, conn)
		_ = b.Close()
		<-done
		if !errors.Is(err, want) || want == nil && n != 3*maxHandshake {
			t.Errorf("certificates of %d bytes: read %d bytes, %v", length, n, err)
		}
	}
}

func pemOf(kind string, ders ...[]byte) (text []byte) {
	for _, der := range ders {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
	}
	return text
}

// An authority between can be revoked by its root, also if it is in the file of authorities, where it has to be for its own lists to count.
func TestRevokedIntermediate(t *testing.T) {
	dir := t.TempDir()
	root := below(t, Pair{}, "root")
	between := below(t, root, "between")
	leaf := must(between.IssueClient("alice", time.Hour))(t).Cert
	list := func(by Pair, revoked ...*x509.Certificate) []byte { return must(by.Revoke(nil, revoked...))(t) }
	chain := []*x509.Certificate{leaf, between.Cert}
	for name, c := range map[string]struct {
		ca  []*x509.Certificate
		crl [][]byte
	}{
		"not listed": {[]*x509.Certificate{root.Cert}, [][]byte{list(root, between.Cert)}},
		"listed":     {[]*x509.Certificate{root.Cert, between.Cert}, [][]byte{list(root, between.Cert), list(between)}},
	} {
		lists := filepath.Join(dir, "ca.crl")
		must(0, os.WriteFile(lists, pemOf("X509 CRL", c.crl...), 0o600))(t)
		s := must(Open(Files{CA: authorityFile(t, c.ca...), CRL: lists}))(t)
		if _, err := s.Check(chain, x509.ExtKeyUsageClientAuth); err == nil {
			t.Errorf("%s: the authority %q is revoked by its root, and what it has signed counts", name, between.Cert.Subject)
		}
	}
}
