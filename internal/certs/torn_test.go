package certs

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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
