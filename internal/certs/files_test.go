package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"
)

// A certificate that ends soon is warned of, and so is one that has ended.
func TestEnds(t *testing.T) {
	k := newKit(t)
	long := must(NewAuthority("long", 3650*day))(t)
	must(0, os.WriteFile(k.file("ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: long.Cert.Raw}), 0o600))(t)
	for _, c := range []struct {
		lasts, before time.Duration
		want          string
	}{
		{365 * day, 15 * day, ""}, {365 * day, 13 * day, "the certificate in tls-cert expires on"}, {365 * day, -time.Second, "the certificate in tls-cert has expired"},
		{time.Hour, 25 * time.Minute, ""}, {time.Hour, 15 * time.Minute, "the certificate in tls-cert expires on"},
	} {
		s := must(Open(k.put(t, fmt.Sprint("c", c.lasts, c.before), must(long.IssueClient("c", c.lasts))(t))))(t)
		s.now = func() time.Time { return s.Own().NotAfter.Add(-c.before) }
		end, warning := s.End(), s.Warning("tls")
		if !end.Equal(s.Own().NotAfter) || (warning == "") != (c.want == "") || !strings.Contains(warning, c.want) {
			t.Errorf("%+v: %v, %q", c, end, warning)
		}
	}
	s := must(Open(Files{CA: k.file("ca.crt")}))(t)
	if end, warning := s.End(), s.Warning("tls"); !end.IsZero() || warning != "" {
		t.Errorf("without a certificate: %v, %q", end, warning)
	}
	s.now = func() time.Time { return time.Now().Add(3645 * day) }
	if warning := s.Warning("tls"); !strings.Contains(warning, "the authority in tls-ca expires") {
		t.Errorf("of an authority that ends: %q", warning)
	}
}

// A revocation list that should have been replaced is warned of.
func TestOldList(t *testing.T) {
	k := newKit(t)
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().AddDate(-1, 0, 0), NextUpdate: time.Now().AddDate(0, -11, 0)}
	der := must(x509.CreateRevocationList(rand.Reader, list, k.Cert, k.Key))(t)
	must(0, os.WriteFile(k.file("ca.crl"), pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), 0o600))(t)
	s := must(Open(Files{CA: k.file("ca.crt"), CRL: k.file("ca.crl")}))(t)
	if warning := s.Warning("tls"); !strings.Contains(warning, "a revocation list in tls-crl was to be replaced") {
		t.Errorf("%q", warning)
	}
}

// A file that has taken the place of another is read, also if it has the same length and time, as where
// times are kept or are all equal.
func TestAnotherFileOfTheSameTime(t *testing.T) {
	k := newKit(t)
	a, b := k.client(t, "a"), k.client(t, "b")
	when := time.Unix(1, 0)
	write := func(c *x509.Certificate) int64 { // as another file takes its place
		k.revoke(t, c)
		must(0, os.Chtimes(k.file("ca.crl"), when, when))(t)
		return must(os.Stat(k.file("ca.crl")))(t).Size()
	}
	size := write(a.Cert)
	s := must(Open(Files{CA: k.file("ca.crt"), CRL: k.file("ca.crl")}))(t)
	must(0, os.Rename(k.file("ca.crl"), k.file("old.crl")))(t)
	for write(b.Cert) != size {
	}
	changed, err := s.Refresh()
	if _, bad := s.Check([]*x509.Certificate{b.Cert}, x509.ExtKeyUsageClientAuth); bad == nil {
		t.Errorf("the list is another file, and is not read (%v, %v): who is revoked by it counts", changed, err)
	}
}

// Revocations are read while the own key cannot be.
func TestRevokedWhileTheOwnKeyIsBroken(t *testing.T) {
	k := newKit(t)
	own, bad := k.put(t, "s", must(k.IssueServer([]string{"h"}, time.Hour))(t)), k.client(t, "mallory")
	own.CRL = k.file("ca.crl")
	k.revoke(t)
	s := must(Open(own))(t)
	must(0, os.WriteFile(own.Key, []byte("half a file"), 0o600))(t) // as while it is replaced, or after it was badly
	k.revoke(t, bad.Cert)
	_, err := s.Refresh()
	if _, bad := s.Check([]*x509.Certificate{bad.Cert}, x509.ExtKeyUsageClientAuth); bad == nil {
		t.Errorf("a revoked certificate counts for as long as the own key cannot be read: %v", err)
	}
	if s.Own() == nil {
		t.Error("the own certificate that was read before is gone")
	}
}

// Who counted once does so when a certificate of the path has ended, the authority's first, too.
func TestCountsAfterTheAuthorityHasEnded(t *testing.T) {
	k := newKit(t)
	now := time.Now()
	caKey, key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t), must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER := must(x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey))(t)
	leaf := must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(2 * time.Hour), DNSNames: []string{"r"}}, ca, key.Public(), caKey))(t)))(t)
	must(0, os.WriteFile(k.file("ca3.crt"), pemOf("CERTIFICATE", caDER), 0o600))(t)
	s := must(Open(Files{CA: k.file("ca3.crt")}))(t)
	proof := must(s.Check([]*x509.Certificate{leaf}, x509.ExtKeyUsageAny))(t)
	if want := now.Add(time.Hour); proof.Ends().Sub(want).Abs() > time.Second {
		t.Errorf("the path ends at %v, want %v", proof.Ends(), want)
	}
	for _, after := range []time.Duration{0, 90 * time.Minute, 3 * time.Hour} {
		s.now = func() time.Time { return now.Add(after) }
		if !s.Counts(proof) {
			t.Errorf("%v after: a replica whose authority has expired, and nobody has taken back, is cut off", after)
		}
	}
}
