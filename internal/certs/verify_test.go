package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

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
	k := newKit(t)
	now := time.Now()
	mk := func(subject string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, ca bool) (*x509.Certificate, *ecdsa.PrivateKey) {
		key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: subject}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IsCA: ca, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature}
		if ca {
			c.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
		} else {
			c.DNSNames = []string{subject}
		}
		if parent == nil {
			parent, parentKey = c, key
		}
		return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, c, parent, key.Public(), parentKey))(t)))(t), key
	}
	root, rootKey := mk("root", nil, nil, true)
	between, betweenKey := mk("between", root, rootKey, true)
	leaf, _ := mk("alice", between, betweenKey, false)
	list := func(by *x509.Certificate, key *ecdsa.PrivateKey, revoked ...*x509.Certificate) []byte {
		l := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now, NextUpdate: now.Add(time.Hour)}
		for _, c := range revoked {
			l.RevokedCertificateEntries = append(l.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: now})
		}
		return must(x509.CreateRevocationList(rand.Reader, l, by, key))(t)
	}
	chain := []*x509.Certificate{leaf, between}
	for name, c := range map[string]struct {
		ca  [][]byte
		crl [][]byte
	}{
		"not listed": {[][]byte{root.Raw}, [][]byte{list(root, rootKey, between)}},
		"listed":     {[][]byte{root.Raw, between.Raw}, [][]byte{list(root, rootKey, between), list(between, betweenKey)}},
	} {
		must(0, os.WriteFile(k.file("ca2.crt"), pemOf("CERTIFICATE", c.ca...), 0o600))(t)
		must(0, os.WriteFile(k.file("ca2.crl"), pemOf("X509 CRL", c.crl...), 0o600))(t)
		s := must(Open(Files{CA: k.file("ca2.crt"), CRL: k.file("ca2.crl")}))(t)
		if _, err := s.Check(chain, x509.ExtKeyUsageClientAuth); err == nil {
			t.Errorf("%s: the authority %q is revoked by its root, and what it has signed counts", name, between.Subject)
		}
	}
}
