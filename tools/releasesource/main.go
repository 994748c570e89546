// Command releasesource writes the source of a release into an archive. From it,
// e2e.TestRollingUpgrade builds the version from which a cell is upgraded: a clone without history,
// or a copy without git, can build it, too. Run it in the tools directory, as `make release-source`
// does.
//
// The archive has the files of which chubbyd and chubbyctl are built, and no tests. The command
// removes the archive of the previous release: upgrades are tested from the newest release.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/chubbylock/chubby"

func main() {
	ref := flag.String("ref", "", "the release, a tag of this repository")
	dir := flag.String("dir", "../e2e/testdata", "write the archive into this directory")
	flag.Parse()
	if err := writeRelease(*dir, *ref); err != nil {
		fmt.Fprintf(os.Stderr, "releasesource: %v\n", err)
		os.Exit(1)
	}
}

// archiveName is the file of a release.
func archiveName(ref string) string { return "release-" + ref + ".tar.gz" }

// writeRelease writes the archive of a release, and removes those of others.
func writeRelease(dir, ref string) error {
	if ref == "" || strings.ContainsAny(ref, "/ ") {
		return fmt.Errorf("-ref %q: want the tag of a release, as in make release-source REF=v0.1.0", ref)
	}
	files, err := sourceOf(ref)
	if err != nil {
		return err
	}
	data, err := compress(files)
	if err != nil {
		return err
	}
	others, err := filepath.Glob(filepath.Join(dir, archiveName("*")))
	if err != nil {
		return err
	}
	for _, other := range others {
		if err := os.Remove(other); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, archiveName(ref)), data, 0o644)
}

// file is one file of a release.
type file struct {
	name string // relative to the module, with slashes
	text []byte
}

// sourceOf returns the files of which the two binaries of a release are built, by name.
func sourceOf(ref string) (files []file, err error) {
	top, err := output("", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	tree, err := output(strings.TrimSpace(string(top)), "git", "archive", "--format=tar", ref)
	if err != nil {
		return nil, err
	}
	all, err := untar(bytes.NewReader(tree))
	if err != nil {
		return nil, fmt.Errorf("git archive %s: %w", ref, err)
	}
	dir, err := os.MkdirTemp("", "chubby-release-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, f := range all {
		name := filepath.Join(dir, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(name, f.text, 0o644); err != nil {
			return nil, err
		}
	}
	list, err := output(dir, "go", "list", "-deps", "-f", "{{.ImportPath}}", "./cmd/chubbyd", "./cmd/chubbyctl")
	if err != nil {
		return nil, err
	}
	packages := strings.Fields(string(list))
	for _, f := range all {
		if isNeeded(f.name, packages) {
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return files, nil
}

// isNeeded reports whether a build of these packages, for any system, may read a file.
func isNeeded(name string, packages []string) bool {
	if name == "go.mod" || name == "go.sum" || name == "LICENSE" {
		return true
	}
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") &&
		slices.Contains(packages, path.Join(module, path.Dir(name)))
}

// compress writes files as a .tar.gz whose bytes depend only on them.
func compress(files []file) ([]byte, error) {
	var b bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	tarred := tar.NewWriter(zipped)
	for _, f := range files {
		if err := tarred.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text)), Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := tarred.Write(f.text); err != nil {
			return nil, err
		}
	}
	err = errors.Join(tarred.Close(), zipped.Close())
	return b.Bytes(), err
}

// untar returns the regular files of an archive.
func untar(r io.Reader) (files []file, err error) {
	for archive := tar.NewReader(r); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if head.Typeflag != tar.TypeReg {
			continue
		}
		if !filepath.IsLocal(filepath.FromSlash(head.Name)) {
			return nil, fmt.Errorf("%q leads out of the archive", head.Name)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		files = append(files, file{head.Name, text})
	}
}

// output runs a command in a directory.
func output(dir, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
