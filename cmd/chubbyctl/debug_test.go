package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// unpacked reads a bundle: the text of each file, by its name.
func unpacked(t *testing.T, name string) map[string]string {
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
	files := map[string]string{}
	for archive := tar.NewReader(packed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "chubby-debug/")] = string(text)
	}
}

// A bundle has what each replica says of itself, and the status. Without a master it has what those say that answer; what is missing is said in
// it and on standard error, and by the exit code. A file that is there is not written over.
func TestDebugBundle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 3)
		s := &stage{t: t, cell: c, ctx: t.Context()}
		dir := t.TempDir()
		time.Sleep(5 * time.Second) // until all know who is an operator
		whole, part := filepath.Join(dir, "whole"), filepath.Join(dir, "part")
		if text := s.run("cell debug " + whole); !strings.Contains(text, "12 of 12 parts") || strings.Contains(text, "[exit") {
			t.Errorf("with all replicas:\n%s", text)
		}
		if info, err := os.Stat(whole); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		files := unpacked(t, whole)
		for _, id := range []string{"r1", "r2", "r3"} {
			if !strings.Contains(files[id+"/metrics.txt"], "\nchubby_contents_used_ratio ") || !strings.Contains(files[id+"/goroutines.txt"], "goroutine profile: total ") {
				t.Errorf("%s says %.200q and %.200q", id, files[id+"/metrics.txt"], files[id+"/goroutines.txt"])
			}
		}
		if !strings.Contains(files["status.json"], `"master": "`+c.Master()+`"`) || files["missing.txt"] != "" {
			t.Errorf("status %.300q, missing %q", files["status.json"], files["missing.txt"])
		}
		if text := s.run("cell debug " + whole); !strings.Contains(text, "exists") || !strings.Contains(text, "[exit 1]") {
			t.Errorf("over a file that is there:\n%s", text)
		}
		c.Kill("r1")
		c.Kill("r2")
		time.Sleep(10 * time.Second)
		text := s.run("cell debug " + part)
		for _, want := range []string{"4 of 12 parts", "metrics of r1 is missing: ", "log of r2 is missing: ", "[exit 69]"} {
			if !strings.Contains(text, want) {
				t.Errorf("of one replica: no %q in\n%s", want, text)
			}
		}
		files = unpacked(t, part)
		if files["r3/metrics.txt"] == "" || strings.Count(files["missing.txt"], "\n") != 8 {
			t.Errorf("of one replica: %.100q, missing %q", files["r3/metrics.txt"], files["missing.txt"])
		}
	})
}

// Whatever the bundle lacks of a part is listed, and the exit code says that something is missing.
func TestDebugSaysWhatIsMissing(t *testing.T) {
	whole := client.DebugPart{Replica: "r3", Name: "log", Text: []byte("x")}
	for what, parts := range map[string][]client.DebugPart{
		"r1/log,r2/log": {
			{Replica: "r1", Name: "log", Err: api.Errorf(api.Unavailable, "down")}, {Replica: "r2", Name: "log", Err: api.Errorf(api.PermissionDenied, "no operator")}, whole,
		},
		"r1/log": {{Replica: "r1", Name: "log", Text: []byte("x"), Cut: true}, whole},
	} {
		var out, said buffer
		g := &globals{output: term.JSON}
		err := tellDebug(g.output, &out, &said, "f", parts)
		missing := `"parts":1,"missing":["` + strings.ReplaceAll(what, ",", `","`) + `"]`
		if exitCode(err) != exitUnavailable || !strings.Contains(out.String(), missing) || strings.Count(said.String(), "\n") != len(parts)-1 {
			t.Errorf("exit code %d (%v), want %d; printed %s, said %s", exitCode(err), err, exitUnavailable, out.String(), said.String())
		}
	}
}

// A bundle that cannot be written leaves no file, so that the next try can have its name.
func TestDebugLeavesNoPart(t *testing.T) {
	name := filepath.Join(t.TempDir(), "bundle")
	if err := writeDebug(name, func() {}, nil); err == nil {
		t.Error("a function was written as JSON")
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
}
