package e2e

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const (
	modulePath  = "github.com/chubbylock/chubby"
	mainVersion = "v0.2.0-0.20261128000000-000000000000" // what the branch main is called
)

// moduleProxy returns the environment of a go command for which the module is published: the last release, and this tree as the
// branch main. What these need comes from where the module cache has it.
func moduleProxy(t *testing.T) []string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "proxy")
	versions := filepath.Join(dir, filepath.FromSlash(modulePath), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(versions, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	releases, err := filepath.Glob("testdata/release-*.tar.gz")
	if err != nil || len(releases) != 1 {
		t.Fatalf("%q, %v; want the archive of one release", releases, err)
	}
	released := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(releases[0]), "release-"), ".tar.gz")
	write("list", released+"\n")
	for version, files := range map[string]map[string][]byte{released: releasedFiles(t, releases[0]), mainVersion: treeFiles(t)} {
		write(version+".mod", string(files["go.mod"]))
		info := `{"Version":"` + version + `","Time":"2026-11-28T00:00:00Z"}`
		write(version+".info", info)
		if version == mainVersion {
			write("main.info", info)
		}
		writeModuleZip(t, filepath.Join(versions, version+".zip"), version, files)
	}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	cache, network, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || cache == "" {
		t.Fatalf("go env: %v", err)
	}
	// The module cache that is filled is one of the test's own: this tree is another one at each run.
	return []string{"GOPROXY=file://" + dir + ",file://" + cache + "/cache/download," + network, "GOSUMDB=off", "GOFLAGS=-modcacherw",
		"GOWORK=off", "GOMODCACHE=" + filepath.Join(t.TempDir(), "modules")}
}

// treeFiles returns the files of this module that git knows, without those of the modules below it.
func treeFiles(t *testing.T) map[string][]byte {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	names := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	var below []string
	for _, name := range names {
		if dir, isModule := strings.CutSuffix(name, "/go.mod"); isModule {
			below = append(below, dir+"/")
		}
	}
	files := map[string][]byte{}
	for _, name := range names {
		if isBelow(name, below) {
			continue
		}
		info, err := os.Lstat(filepath.Join("..", name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue // deleted and not committed yet, or a link, which modules do not have
		}
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = text
	}
	return files
}

func isBelow(name string, dirs []string) bool {
	for _, dir := range dirs {
		if strings.HasPrefix(name, dir) {
			return true
		}
	}
	return false
}

// releasedFiles returns the files of a release's source.
func releasedFiles(t *testing.T, archive string) map[string][]byte {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if files[path.Clean(h.Name)], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// writeModuleZip writes files in the form in which proxies hand out a module.
func writeModuleZip(t *testing.T, file, version string, files map[string][]byte) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for name, text := range files {
		w, err := z.Create(modulePath + "@" + version + "/" + name)
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}
