package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func containerfile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/container/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestStage(t *testing.T) {
	config, err := parseStage(containerfile(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := config.Volumes["/var/lib/chubby"]; !ok || config.User != "65532:65532" || len(config.ExposedPorts) != 3 ||
		!slices.Equal(config.Entrypoint, []string{"/usr/bin/chubbyd"}) || !slices.Equal(config.Cmd, []string{"serve"}) {
		t.Errorf("%+v", config)
	}
	for _, bad := range []string{"FROM scratch\nUSER 1\n", "FROM scratch\nUSER 1\nENTRYPOINT [\"x\"]\nRUN x\n", "FROM scratch\nUSER 1\nENTRYPOINT x\n"} {
		if config, err := parseStage(bad); err == nil {
			t.Errorf("%q is taken as %+v", bad, config)
		}
	}
}

// Who builds with the file has the toolchain of those who build without it.
func TestToolchain(t *testing.T) {
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`(?m)^toolchain go(.*)$`).FindSubmatch(module)
	got := regexp.MustCompile(`(?m)^FROM docker.io/library/golang:(\S+) AS build$`).FindStringSubmatch(containerfile(t))
	if want == nil || got == nil || got[1] != string(want[1]) {
		t.Errorf("the Containerfile builds with %q, go.mod with %q", got, want)
	}
}

// An image has what the file says, and is the same whoever makes it.
func TestArchive(t *testing.T) {
	config, err := parseStage(containerfile(t))
	if err != nil {
		t.Fatal(err)
	}
	created := time.Unix(1_800_000_000, 0).UTC()
	var files [][]byte
	for range 2 {
		dir := t.TempDir()
		for _, program := range []string{"chubbyd", "chubbyctl"} {
			if err := os.WriteFile(filepath.Join(dir, program), []byte(program), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		image, err := assemble(config, "arm64", dir, created)
		if err != nil {
			t.Fatal(err)
		}
		archive, tree := filepath.Join(dir, "image.tar"), filepath.Join(dir, "layout")
		if err := writeArchive(archive, tree, []v1.Image{image}); err != nil {
			t.Fatal(err)
		}
		index, err := layout.ImageIndexFromPath(tree)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Error(err)
		}
		file, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		owns(t, image)
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("two archives of the same programs differ")
	}
}

// owns checks that the user of the image has the directory of the volume.
func owns(t *testing.T, image v1.Image) {
	t.Helper()
	found := false
	for archive := tar.NewReader(mutate.Extract(image)); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if head.Name == "var/lib/chubby" {
			found = head.Uid == 65532 && head.Gid == 65532
		} else if head.Uid != 0 || head.Mode&0o022 != 0 {
			t.Errorf("%s belongs to %d, and has the mode %o", head.Name, head.Uid, head.Mode)
		}
	}
	if !found {
		t.Error("the image's user has no /var/lib/chubby")
	}
}

func TestAuthorities(t *testing.T) {
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(authorities()) {
		t.Error("no authority is found in the file")
	}
}
