package e2e

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A bundle for a report, of a cell with certificates, has the log and the configuration of each replica, and nothing that is secret: no
// private key of the cell, no contents of files, no query of a URL. Nobody but operators gets it.
func TestDebugBundleHasNoSecrets(t *testing.T) {
	besideOthers(t)
	w := newWorld(t)
	const contents, query = "s3cret-contents-of-a-file", "s3cret-of-a-query"
	w.env = append(steadyMaster(), "CHUBBYD_TOKEN_KEYS=https://127.0.0.1:1/keys?tenant="+query, "CHUBBYD_TOKEN_ISSUER=test", "CHUBBYD_TOKEN_AUDIENCE=test")
	w.run("--tls", "--replicas", "3")
	tls := filepath.Join(w.dir, "tls")
	if out, err := command(bin("chubbyd"), "certs", "client", "stranger", "--dir", tls).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctl := func(who string, args ...string) (string, error) {
		flags := []string{"--servers", strings.Join(strings.Split(w.servers(), ",")[:3], ","), "--cacert", filepath.Join(tls, "ca.crt"), "--cert", filepath.Join(tls, "client-"+who+".crt"), "--key", filepath.Join(tls, "client-"+who+".key")}
		out, err := command(bin("chubbyctl"), append(flags, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := ctl("dev", "put", w.path("f"), contents); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var text string
	for end := time.Now().Add(patience(time.Minute)); ; time.Sleep(100 * time.Millisecond) { // a replica that has just begun knows no operator yet
		name := filepath.Join(t.TempDir(), "bundle")
		out, err := ctl("dev", "cell", "debug", name, "local")
		if err == nil {
			text = bundleText(t, name)
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, want := range []string{"r1/config.txt", "r3/log.txt", "keys?left-out", "tls-key: ", "goroutine profile", "chubby_contents_used_ratio"} {
		if !strings.Contains(text, want) {
			t.Errorf("it has no %q", want)
		}
	}
	secrets := map[string]string{"contents": contents, "a query": query}
	for _, pattern := range []string{"*.key", "*/*.key", "*/*/*.key"} {
		names, err := filepath.Glob(filepath.Join(w.dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			file, err := os.ReadFile(name)
			if block, _ := pem.Decode(file); err == nil && block != nil {
				whole := base64.StdEncoding.EncodeToString(block.Bytes)
				secrets[name] = whole[len(whole)-40:]
			}
		}
	}
	if len(secrets) < 6 {
		t.Fatalf("there are few keys: %v", secrets)
	}
	for what, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%s is in it", what)
		}
	}
	name := filepath.Join(t.TempDir(), "bundle")
	if out, err := ctl("stranger", "cell", "debug", name, "local"); err == nil || !strings.Contains(out, "0 of 12 parts") {
		t.Errorf("a stranger: %v\n%s", err, out)
	}
}

// bundleText returns the names and texts of all files of a bundle.
func bundleText(t *testing.T, name string) string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	archive := tar.NewReader(packed)
	for header, err := archive.Next(); err == nil; header, err = archive.Next() {
		fmt.Fprintf(&all, "== %s\n", header.Name)
		if _, err := io.Copy(&all, archive); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
