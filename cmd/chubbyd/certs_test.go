package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/internal/tokens"
)

// certsIn makes a working set of certificates for one replica and one client.
func certsIn(t *testing.T) (dir, configuration string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "certs")
	for _, args := range [][]string{{"init"}, {"server", "r1", "--cell", "main", "--host", "h1,10.0.0.5"}, {"client", "spiffe://example.org/billing"}} {
		out := ran(t, append(append([]string{"certs"}, args...), "--dir", dir)...)
		if _, lines, found := strings.Cut(out, "\n\n"); found {
			configuration = lines
		}
	}
	return dir, configuration
}

// certs makes all that a replica and a client need, and prints the lines of a configuration.
func TestCertsMakesAWorkingSet(t *testing.T) {
	dir, configuration := certsIn(t)
	file := fileWith(t, "cell: main\nid: r1\ndata: d\nmembers: r1=h1:7421,h1:7431\n"+strings.ReplaceAll(configuration, "  ", ""))
	if _, complaints, err := output(t, "config", "check", file); err != nil {
		t.Errorf("the configuration that is printed: %v\n%s", err, complaints)
	}
	server, err := certs.Open(certs.Files{Cert: filepath.Join(dir, "server-r1.crt"), Key: filepath.Join(dir, "server-r1.key"), CA: filepath.Join(dir, "ca.crt")})
	if err != nil || server.Own().VerifyHostname("h1") != nil || server.Own().VerifyHostname("10.0.0.5") != nil {
		t.Errorf("the server's: %v", err)
	}
	client := must(certs.ReadPair(filepath.Join(dir, "client-billing.crt"), filepath.Join(dir, "client-billing.key")))(t)
	if name, err := certs.PrincipalOf(client.Cert); err != nil || name != "spiffe://example.org/billing" {
		t.Errorf("the client's is of %q, %v", name, err)
	}
	replica := must(certs.ReadPair(filepath.Join(dir, "replica-r1.crt"), filepath.Join(dir, "replica-r1.key")))(t)
	if is, err := certs.ReplicaOf(replica.Cert); err != nil || is != (certs.Replica{Cell: "main", ID: "r1"}) {
		t.Errorf("the replica's is of %v, %v", is, err)
	}
	if keys, err := filepath.Glob(filepath.Join(dir, "*.key")); err != nil || len(keys) != 5 {
		t.Errorf("keys: %v, %v", keys, err)
	} else {
		for _, key := range keys {
			if about, err := os.Stat(key); err != nil || about.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", key, about.Mode(), err)
			}
		}
	}
}

// Nothing that is there is replaced, and what is wrong is said.
func TestCertsFaults(t *testing.T) {
	dir, _ := certsIn(t)
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"a second init":        {[]string{"init"}, 1, "nothing is replaced"},
		"a second server":      {[]string{"server", "r1", "--host", "h1"}, 1, "nothing is replaced"},
		"no host":              {[]string{"server", "r2"}, 2, "--host is missing"},
		"no name of a replica": {[]string{"server", "r 2", "--host", "h"}, 2, "cannot be a replica's name"},
		"no principal":         {[]string{"client"}, 2, "accepts 1 arg"},
		"no SPIFFE ID":         {[]string{"client", "spiffe://a b"}, 1, "make the certificate"},
		"no time":              {[]string{"client", "x", "--days", "0"}, 2, "1 to 36500"},
		"no authority":         {[]string{"client", "x", "--dir", t.TempDir()}, 1, "certs init"},
		"revoke no file":       {[]string{"revoke", "none.crt"}, 1, "none.crt"},
		"revoke a key":         {[]string{"revoke", filepath.Join(dir, "ca.key")}, 1, "does not begin with a certificate"},
		"revoke a stranger's":  {[]string{"revoke", "--dir", dir, strangersCertificate(t)}, 1, "none of the authorities"},
	} {
		args := append([]string{"certs"}, c.args...)
		if !strings.Contains(strings.Join(c.args, " "), "--dir") {
			args = append(args, "--dir", dir)
		}
		if _, _, err := output(t, args...); exitCode(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: exit code %d, %v; want %d and %q", name, exitCode(err), err, c.code, c.want)
		}
	}
}

func strangersCertificate(t *testing.T) string {
	dir, _ := certsIn(t)
	return filepath.Join(dir, "client-billing.crt")
}

// A revoked certificate is in the list of its authority, with all that were revoked before, in any list of the file.
func TestCertsRevoke(t *testing.T) {
	dir, _ := certsIn(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	pair := func(name string) certs.Pair { return must(certs.ReadPair(file(name+".crt"), file(name+".key")))(t) }
	revoke := func(name, list string) {
		t.Helper()
		if _, err := os.Stat(file(list)); name != "client-second" && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal("a list is there before:", err)
		}
		if out := ran(t, "certs", "revoke", file(name+".crt"), "--dir", dir); !strings.Contains(out, file(list)) {
			t.Error(out)
		}
	}
	count := func(want ...string) {
		t.Helper()
		s := must(certs.Open(certs.Files{CA: file("ca.crt"), CRL: file("ca.crl")}))(t)
		for _, name := range []string{"client-billing", "client-mallory", "client-second"} {
			_, err := s.Check([]*x509.Certificate{pair(name).Cert}, x509.ExtKeyUsageAny)
			if (err == nil) != slices.Contains(want, name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	ran(t, "certs", "client", "mallory", "--dir", dir)
	ran(t, "certs", "client", "second", "--dir", dir)
	revoke("client-billing", "ca.crl")
	count("client-mallory", "client-second")
	another := pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: must(pair("ca").Revoke(nil, pair("client-mallory").Cert))(t)})
	noErr(t, os.WriteFile(file("ca.crl"), append(must(os.ReadFile(file("ca.crl")))(t), another...), 0o600))
	count("client-second")
	revoke("client-second", "ca.crl")
	count()
	revoke("replica-r1", "replica-ca.crl")
}

// serve wants certificates, or insecure: true; not both.
func TestServeNeedsCertificatesOrInsecure(t *testing.T) {
	for name, c := range map[string]struct {
		lines string
		want  string
	}{
		"neither":       {"", "tls-cert is missing"},
		"both":          {"insecure: true\ntls-cert: x\n", "certificates are named, too"},
		"some":          {"tls-cert: x\ntls-key: x\ntls-ca: x\npeer-tls-cert: x\n", "peer-tls-key: no file is named"},
		"by their word": {"tls-cert: x\ntls-key: x\ntls-ca: x\npeer-tls-cert: x\npeer-tls-key: x\npeer-tls-ca: x\ninsecure-principals: true\n", "says who it is"},
		"insecure":      {"insecure: true\n", ""},
		"none named":    {"insecure: true\ntls-crl: none\n", ""},
		"no operators":  {"bootstrap: true\ntls-cert: x\ntls-key: x\ntls-ca: x\npeer-tls-cert: x\npeer-tls-key: x\npeer-tls-ca: x\n", "nobody is named in operators"},
		"everybody":     {"bootstrap: true\noperators: everybody\ntls-cert: x\ntls-key: x\ntls-ca: x\npeer-tls-cert: x\npeer-tls-key: x\npeer-tls-ca: x\n", ""},
		"no principal":  {"operators: a,,b\ninsecure: true\n", "no principal in it"},
		"all":           {"tls-cert: x\ntls-key: x\ntls-ca: x\npeer-tls-cert: x\npeer-tls-key: x\npeer-tls-ca: x\n", ""},
	} {
		file := fileWith(t, "cell: main\nid: r1\ndata: d\nmembers: r1=h1:7421,h1:7431\n"+c.lines)
		if _, complaints, err := output(t, "config", "check", file); (err == nil) != (c.want == "") || !strings.Contains(complaints, c.want) {
			t.Errorf("%s: %v, %q; want %q", name, err, complaints, c.want)
		}
	}
}

// A token that certs makes counts by the keys that it made, and by the lines that it prints.
func TestCertsMakesTokens(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	for _, principal := range []string{"billing", "spiffe://example.org/cart"} {
		out := ran(t, "certs", "token", principal, "--dir", dir)
		_, lines, _ := strings.Cut(out, "\n\n")
		var printed map[string]string
		noErr(t, yaml.Unmarshal([]byte(lines), &printed))
		cfg := tokens.Config{Keys: printed["token-keys"], Issuer: printed["token-issuer"], Audience: printed["token-audience"]}
		store := must(tokens.Open(t.Context(), cfg))(t)
		name := filepath.Join(dir, strings.ReplaceAll(principal, "/", "_")+".token")
		raw := must(tokens.ReadFile(name))(t)
		if token, err := store.Verify(t.Context(), raw); err != nil || token.Principal != principal {
			t.Errorf("%s: %+v, %v", principal, token, err)
		}
		for _, secret := range []string{name, filepath.Join(dir, tokenKey)} {
			if about, err := os.Stat(secret); err != nil || about.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", secret, about.Mode(), err)
			}
		}
	}
	if _, _, err := output(t, "certs", "token", "billing", "--dir", dir, "--for", "1s"); err == nil {
		t.Error("a token for a second")
	}
}

// Nothing is revoked in a file of which a part cannot be read: what that has revoked would count again.
func TestCertsRevokeRefusesTornLists(t *testing.T) {
	dir, _ := certsIn(t)
	list, cert := filepath.Join(dir, "ca.crl"), filepath.Join(dir, "client-billing.crt")
	ran(t, "certs", "revoke", cert, "--dir", dir)
	one := must(os.ReadFile(list))(t)
	torn := string(one) + string(one[:len(one)-30])
	noErr(t, os.WriteFile(list, []byte(torn), 0o600))
	if _, _, err := output(t, "certs", "revoke", cert, "--dir", dir); err == nil || !strings.Contains(err.Error(), "is not whole") {
		t.Errorf("a torn file is extended: %v", err)
	}
	if left, err := os.ReadFile(list); err != nil || string(left) != torn {
		t.Errorf("the file is another now (%v)", err)
	}
}

// config show finds faults of the files of certificates before a replica is started with them.
func TestConfigShowReadsTheCertificates(t *testing.T) {
	dir, configuration := certsIn(t)
	lines := "cell: main\nid: r1\ndata: d\nmembers: r1=h1:7421,h1:7431\noperators: ops\n" + strings.ReplaceAll(configuration, "  ", "")
	for what, c := range map[string]struct{ replace, by, want string }{
		"all is well":              {},
		"an authority of both":     {"peer-tls-ca: " + dir + "/replica-ca.crt", "peer-tls-ca: " + dir + "/ca.crt", "in common"},
		"of another replica":       {"id: r1\ndata: d\nmembers: r1", "id: r2\ndata: d\nmembers: r2", "does not name this replica"},
		"a key of another":         {"tls-key: " + dir + "/server-r1.key", "tls-key: " + dir + "/replica-r1.key", "server-r1.crt with key"},
		"files of another machine": {dir, "/nowhere", ""},
	} {
		text := lines
		if c.replace != "" {
			if text = strings.ReplaceAll(lines, c.replace, c.by); text == lines {
				t.Fatalf("%s: %q is not in\n%s", what, c.replace, lines)
			}
		}
		file := fileWith(t, text)
		out, _, err := output(t, "config", "show", "--config", file)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || !strings.Contains(out, "tls-ca: ") {
			t.Errorf("%s: %v, want %q\n%s", what, err, c.want, out)
		}
	}
}
