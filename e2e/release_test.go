package e2e

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
)

// release is a version of the two binaries.
type release struct {
	name string
	dir  string // with chubbyd and chubbyctl; of a release also with testdata/replay, built with its packages
}

func (r release) bin(name string) string { return filepath.Join(r.dir, name) }

// thisVersion is what TestMain has built.
func thisVersion() release { return release{name: "this version", dir: binaries} }

// lastRelease builds the newest release from the archive of its source, which make release-source writes.
func lastRelease(t *testing.T) release {
	t.Helper()
	archive, name := releaseArchive(t)
	source := unpack(t, archive)
	replay, err := os.ReadFile("testdata/replay/main.go")
	noErr(t, err)
	noErr(t, replaceFile(filepath.Join(source, "replay", "main.go"), replay))
	r := release{name: name, dir: t.TempDir()}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", r.dir, "./cmd/chubbyd", "./cmd/chubbyctl", "./replay")
	build.Dir, build.Env = source, append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s in %s: %v\n%s", name, source, err, out)
	}
	return r
}

// releaseArchive returns the archive of the newest release, and the version of that.
func releaseArchive(t *testing.T) (file, version string) {
	t.Helper()
	archives, err := filepath.Glob("testdata/release-*.tar.gz")
	if err != nil || len(archives) != 1 {
		t.Fatalf("%q, %v: want the archive of one release; make release-source REF=<the newest release> writes it", archives, err)
	}
	return archives[0], strings.TrimSuffix(strings.TrimPrefix(filepath.Base(archives[0]), "release-"), ".tar.gz")
}

// unpack returns a directory with the files of an archive. The directory has its place by
// what is in the archive, beside the cache of the go command: go compiles the packages in
// it once, and finds them in its cache when the test is run again.
func unpack(t *testing.T, archive string) (dir string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir() // there is no home
	}
	dir = filepath.Join(cache, "chubby-e2e", fmt.Sprintf("%x", sha256.Sum256(must(os.ReadFile(archive))(t)))[:16])
	for name, text := range releasedFiles(t, archive) {
		noErr(t, replaceFile(filepath.Join(dir, name), text))
	}
	return dir
}

// replaceFile gives a file contents, unless it has them. A reader meanwhile, such as
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
	noErr(t, os.MkdirAll(versions, 0o755))
	write := func(name, text string) {
		t.Helper()
		noErr(t, os.WriteFile(filepath.Join(versions, name), []byte(text), 0o600))
	}
	archive, released := releaseArchive(t)
	write("list", released+"\n")
	for version, files := range map[string]map[string][]byte{released: releasedFiles(t, archive), mainVersion: treeFiles(t)} {
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
	stopIf(t, err != nil || cache == "", "go env: %v", err)
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
	noErr(t, err, "git ls-files")
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
		noErr(t, err)
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
	f := must(os.Open(archive))(t)
	defer f.Close()
	z := must(gzip.NewReader(f))(t)
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		noErr(t, err)
		if h.Typeflag != tar.TypeReg {
			continue
		}
		stopIf(t, !filepath.IsLocal(h.Name), "%q leads out of the archive", h.Name)
		files[path.Clean(h.Name)] = must(io.ReadAll(r))(t)
	}
}

// writeModuleZip writes files in the form in which proxies hand out a module.
func writeModuleZip(t *testing.T, file, version string, files map[string][]byte) {
	t.Helper()
	f := must(os.Create(file))(t)
	z := zip.NewWriter(f)
	for name, text := range files {
		w, err := z.Create(modulePath + "@" + version + "/" + name)
		if err == nil {
			_, err = w.Write(text)
		}
		noErr(t, err)
	}
	noErr(t, errors.Join(z.Close(), f.Close()))
}

// TestREADMEProgram builds and runs the first Go of the README, to the letter, by its own commands in an empty directory, against
// a cell: it is a whole program of few lines, which works under the lock, and leaves the lock free and no session. The README's
// go install finds both programs.
func TestREADMEProgram(t *testing.T) {
	besideOthers(t)
	readme := must(os.ReadFile("../README.md"))(t)
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)
	stopIf(t, block == nil, "the README has no Go")
	program := string(block[1])
	_, body, _ := strings.Cut(program, "func main() {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	if lines := strings.Count(body, "\n") + 1; lines >= 10 {
		t.Errorf("the program has %d lines in main; want less than 10", lines)
	}
	commands := regexp.MustCompile("`(go mod init [^`]*) && go run \\.`").FindSubmatch(readme)
	install := regexp.MustCompile("`go install ([^`]*@main)`").FindSubmatch(readme)
	stopIf(t, commands == nil || install == nil, "the README has no commands for its program, or for those of the cell")
	dir := t.TempDir()
	noErr(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
	// With -n, go finds all packages and says what it would do; TestMain has built the same.
	line := fmt.Sprintf("%s && go build -o program . && go install -n %s", commands[1], install[1])
	build := exec.CommandContext(t.Context(), "sh", "-c", line)
	build.Dir = dir
	build.Env = append(append(os.Environ(), moduleProxy(t)...), "GOBIN="+dir)
	out, err := build.CombinedOutput()
	stopIf(t, err != nil, "%s: %v\n%s", build, err, out)
	for _, program := range []string{"chubbyctl", "chubbyd"} {
		if !strings.Contains(string(out), " "+filepath.Join(dir, program)+"\n") {
			t.Errorf("%s does not install %s", build, program)
		}
	}

	w := start(t)
	c := w.client(client.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), patience(time.Minute))
	defer cancel()
	before := must(c.Cell().Sessions(ctx))(t)
	cmd := command(filepath.Join(dir, "program"))
	cmd.Env = append(cmd.Env, "CHUBBY_CELLS=local="+w.servers())
	p := launch(t, cmd, (*exec.Cmd).Start)
	if code := p.wait(20 * time.Second); code != 0 || !regexp.MustCompile(`(?s)working under token \d+\n.*ended: <nil>\n`).MatchString(p.stderr.String()) {
		t.Errorf("exit %d\n%s%s", code, &p.stdout, &p.stderr)
	}
	if x, err := c.Cell().Explain(ctx, "/ls/local/backup"); err != nil || x.Lock.Generation == 0 || len(x.Lock.Holders) != 0 {
		t.Errorf("after the program: %+v, %v; want a lock that was held, and is free", x.Lock, err)
	}
	if after, err := c.Cell().Sessions(ctx); err != nil || len(after) != len(before) {
		t.Errorf("%d sessions, and %d before the program: %v", len(after), len(before), err)
	}
	l := must(c.Acquire(ctx, "/ls/local/backup"))(t)
	p = launch(t, func() *exec.Cmd {
		cmd := command(filepath.Join(dir, "program"))
		cmd.Env = append(cmd.Env, "CHUBBY_CELLS=local="+w.servers())
		return cmd
	}(), (*exec.Cmd).Start)
	for { // until it waits
		x := must(c.Cell().Explain(ctx, "/ls/local/backup"))(t)
		if len(x.Lock.Waiters) == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !p.running() || strings.Contains(p.stderr.String(), "working") {
		t.Errorf("another holds the lock, and the program has not waited:\n%s", &p.stderr)
	}
	report(t, l.Release(ctx))
	p.exits(t, 20*time.Second, 0, "in the end")
}
