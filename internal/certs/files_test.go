package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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

// A certificate that counted once does so when a certificate of the path has ended, the authority's first, too.
func TestCountsAfterTheAuthorityHasEnded(t *testing.T) {
	now, made := time.Now(), &shown{t: t}
	authority, key := newKey(t, elliptic.P256()), newKey(t, elliptic.P256())
	s := storeOf(t, made.cert("ca", "ca", authority, authority)) // for an hour
	leaf := made.cert("r", "ca", key, authority, func(c *x509.Certificate) { c.IsCA, c.NotAfter = false, now.Add(2*time.Hour) })
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

// A file that is just being written, or is damaged, is not taken for a shorter one: an authority would be gone, or a list of what was revoked.
func TestTornFilesAreNotTakenOver(t *testing.T) {
	k, other := newKit(t), newKit(t)
	revoked := other.client(t, "revoked")
	authorities := pemOf("CERTIFICATE", k.Cert.Raw, other.Cert.Raw)
	lists := pemOf("X509 CRL", must(k.Revoke(nil))(t), must(other.Revoke(nil, revoked.Cert))(t))
	own := k.put(t, "own", k.client(t, "c"))
	chain := append(must(os.ReadFile(own.Cert))(t), pemOf("CERTIFICATE", k.Cert.Raw)...)
	for what, c := range map[string]struct {
		whole []byte
		file  func(*Files) *string
	}{
		"authorities":         {authorities, func(f *Files) *string { return &f.CA }},
		"lists":               {lists, func(f *Files) *string { return &f.CRL }},
		"the own certificate": {chain, func(f *Files) *string { return &f.Cert }},
	} {
		files := Files{CA: k.file("both.crt"), CRL: k.file("both.crl"), Cert: own.Cert, Key: own.Key}
		must(0, os.WriteFile(files.CA, authorities, 0o600))(t)
		must(0, os.WriteFile(files.CRL, lists, 0o600))(t)
		torn := filepath.Join(t.TempDir(), "torn")
		*c.file(&files) = torn
		second := bytes.LastIndex(c.whole, []byte("-----BEGIN"))
		for _, n := range []int{second + 1, second + 7, second + 20, second + 40, second + (len(c.whole)-second)/2, len(c.whole) - 20, len(c.whole) - 2} {
			must(0, os.WriteFile(torn, c.whole[:n], 0o600))(t)
			if _, err := Open(files); err == nil || !strings.Contains(err.Error(), "is not whole") {
				t.Errorf("%s, %d bytes of %d: %v", what, n, len(c.whole), err)
			}
		}
		rotten := bytes.Clone(c.whole)
		rotten[second+len("-----BEGIN CERTIFICATE-----")+40] = '!'
		must(0, os.WriteFile(torn, rotten, 0o600))(t)
		if _, err := Open(files); err == nil || !strings.Contains(err.Error(), "is not whole") {
			t.Errorf("%s, damaged: %v", what, err)
		}
		for _, around := range []string{"", "\n\n", "# a comment - of people -\n"} {
			must(0, os.WriteFile(torn, []byte(around+string(c.whole)+around), 0o600))(t)
			must(Open(files))(t)
		}
		must(0, os.WriteFile(torn, bytes.TrimSuffix(c.whole, []byte("\n")), 0o600))(t)
		must(Open(files))(t)
	}
}

// A list that is not of all that its issuer has revoked is refused: it would be taken for all.
func TestListsAreWhole(t *testing.T) {
	k := newKit(t)
	revoked := k.client(t, "revoked").Cert
	extension := func(id ...int) []pkix.Extension {
		return []pkix.Extension{{Id: append(asn1.ObjectIdentifier{2, 5, 29}, id...), Critical: true, Value: []byte{2, 1, 1}}}
	}
	for what, c := range map[string]struct {
		list, entry []pkix.Extension
		want        string
	}{
		"whole":           {},
		"of a partition":  {list: extension(28)}, // an issuing distribution point, which many authorities write
		"a delta list":    {list: extension(27), want: "delta"},
		"an indirect one": {entry: extension(29), want: "indirect"},
	} {
		der := must(x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
			Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour), ExtraExtensions: c.list,
			RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: revoked.SerialNumber, RevocationTime: time.Now(), ExtraExtensions: c.entry}},
		}, k.Cert, k.Key))(t)
		name := filepath.Join(t.TempDir(), "ca.crl")
		must(0, os.WriteFile(name, pemOf("X509 CRL", der), 0o600))(t)
		if _, err := Open(Files{CA: k.file("ca.crt"), CRL: name}); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// pki is a world of authorities, some of which have signed others, were renewed, or have a name that another has, too.
type pki struct {
	keys  []*ecdsa.PrivateKey
	names []string // of the keys
	all   []*x509.Certificate
	of    map[*x509.Certificate]int // whose key it certifies
}

func newPKI(t *testing.T, r *mathrand.Rand) *pki {
	w := &pki{of: map[*x509.Certificate]int{}}
	for range 5 {
		w.keys = append(w.keys, must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t))
		w.names = append(w.names, fmt.Sprint("authority ", r.IntN(4)))
	}
	for i := range w.keys {
		w.certify(t, i, i)
		for range r.IntN(3) {
			w.certify(t, i, r.IntN(len(w.keys)))
		}
	}
	return w
}

// sign has the key by sign a certificate.
func (w *pki) sign(t *testing.T, c *x509.Certificate, key *ecdsa.PrivateKey, by int) *x509.Certificate {
	t.Helper()
	c.SerialNumber = must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100)))(t)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	issuer := &x509.Certificate{Subject: pkix.Name{CommonName: w.names[by]}, PublicKey: w.keys[by].Public()}
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, c, issuer, key.Public(), w.keys[by]))(t)))(t)
}

func (w *pki) certify(t *testing.T, i, by int) {
	c := w.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: w.names[i]}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}, w.keys[i], by)
	w.all = append(w.all, c)
	w.of[c] = i
}

// some are certificates for a file.
func (w *pki) some(r *mathrand.Rand) (list []*x509.Certificate) {
	for range 1 + r.IntN(2) {
		list = append(list, w.all[r.IntN(len(w.all))])
	}
	return list
}

// chains calls try with every chain that may be shown with a certificate that a key has signed.
func (w *pki) chains(chain []*x509.Certificate, by int, try func([]*x509.Certificate)) {
	try(chain)
	if len(chain) == maxChain {
		return
	}
	for _, c := range w.all {
		if w.of[c] == by && !slices.Contains(chain, c) {
			issuer := slices.IndexFunc(w.keys, func(key *ecdsa.PrivateKey) bool {
				return c.Issuer.CommonName == w.names[slices.Index(w.keys, key)] && c.CheckSignatureFrom(&x509.Certificate{
					Raw: []byte{1}, Version: 3, BasicConstraintsValid: true, IsCA: true, PublicKeyAlgorithm: x509.ECDSA, PublicKey: key.Public(),
				}) == nil
			})
			if issuer >= 0 && issuer != by {
				w.chains(append(slices.Clone(chain), c), issuer, try)
			}
		}
	}
}

// However authorities have signed each other, and whatever is shown: if the files of the two ports are taken, what an authority of one file has signed itself counts
// nothing at the other port.
func TestNoChainIsOfBothPorts(t *testing.T) {
	r := mathrand.New(mathrand.NewPCG(1, 2)) // the worlds are the same each time, their keys are not
	apart, tried, counted := 0, 0, 0
	for range 100 {
		w := newPKI(t, r)
		ours, theirs := w.some(r), w.some(r)
		a, b := storeOf(t, ours...), storeOf(t, theirs...)
		if KeepApart(a, b) != nil {
			continue
		}
		apart++
		for i, key := range w.keys {
			ofOurs := slices.ContainsFunc(ours, func(c *x509.Certificate) bool { return w.of[c] == i })
			ofTheirs := slices.ContainsFunc(theirs, func(c *x509.Certificate) bool { return w.of[c] == i })
			leaf := w.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "leaf"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, DNSNames: []string{"leaf"}}, key, i)
			w.chains([]*x509.Certificate{leaf}, i, func(chain []*x509.Certificate) {
				tried++
				_, atOurs := a.Check(chain, x509.ExtKeyUsageClientAuth)
				_, atTheirs := b.Check(chain, x509.ExtKeyUsageClientAuth)
				if ofOurs && atTheirs == nil || ofTheirs && atOurs == nil {
					t.Errorf("a chain of %d certificates counts at the other port, too", len(chain))
				}
				if ofOurs && atOurs == nil || ofTheirs && atTheirs == nil {
					counted++
				}
			})
		}
	}
	if apart < 10 || tried < 100 || counted < 50 {
		t.Errorf("%d worlds, %d chains, %d of which count where they belong: too few", apart, tried, counted)
	}
}
