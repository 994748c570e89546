package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// release is a version of the two binaries.
type release struct {
	name string
	dir  string // with chubbyd and chubbyctl; of a release also with testdata/replay, built with its packages
}

func (r release) bin(name string) string { return filepath.Join(r.dir, name) }

// thisVersion is what TestMain has built.
func thisVersion() release { return release{name: "this version", dir: binaries} }

// lastRelease builds the newest release from the archive of its source, which
// make release-source writes.
func lastRelease(t *testing.T) release {
	t.Helper()
	archives, err := filepath.Glob("testdata/release-*.tar.gz")
	if err != nil || len(archives) != 1 {
		t.Fatalf("%q, %v: want the archive of one release; make release-source REF=<the newest release> writes it", archives, err)
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(archives[0]), "release-"), ".tar.gz")
	source, err := unpack(archives[0])
	if err != nil {
		t.Fatalf("unpack %s: %v", archives[0], err)
	}
	replay, err := os.ReadFile("testdata/replay/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(filepath.Join(source, "replay", "main.go"), replay); err != nil {
		t.Fatal(err)
	}
	r := release{name: name, dir: t.TempDir()}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", r.dir, "./cmd/chubbyd", "./cmd/chubbyctl", "./replay")
	build.Dir, build.Env = source, append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s in %s: %v\n%s", name, source, err, out)
	}
	return r
}

// unpack returns a directory with the files of an archive. The directory has its place by
// what is in the archive, beside the cache of the go command: go compiles the packages in
// it once, and finds them in its cache when the test is run again.
func unpack(archive string) (dir string, err error) {
	data, err := os.ReadFile(archive)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir() // there is no home
	}
	dir = filepath.Join(cache, "chubby-e2e", fmt.Sprintf("%x", sha256.Sum256(data))[:16])
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	for files := tar.NewReader(unzipped); ; {
		head, err := files.Next()
		if errors.Is(err, io.EOF) {
			return dir, nil
		}
		if err != nil {
			return "", err
		}
		if head.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return "", err
		}
		if !filepath.IsLocal(head.Name) {
			return "", fmt.Errorf("%q leads out of the archive", head.Name)
		}
		if err := replaceFile(filepath.Join(dir, head.Name), text); err != nil {
			return "", err
		}
	}
}

// replaceFile gives a file contents, unless it has them. Whoever reads it meanwhile, as
// another run of the test, finds the old contents or the new ones.
func replaceFile(name string, text []byte) error {
	if has, err := os.ReadFile(name); err == nil && bytes.Equal(has, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	return errors.Join(err, next.Close(), os.Rename(next.Name(), name))
}
