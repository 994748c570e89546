package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// entry is a file of the image, or a directory if it has no text.
type entry struct {
	name  string // from the root
	text  []byte
	mode  int64
	owner int
}

// assemble makes the image for one processor of the programs in a directory.
func assemble(config v1.Config, processor, bin string, created time.Time) (v1.Image, error) {
	uid, _, _ := strings.Cut(config.User, ":")
	owner, err := strconv.Atoi(uid)
	if err != nil {
		return nil, fmt.Errorf("USER has to be a number, since the image has no list of users: %w", err)
	}
	entries := []entry{{name: "etc/ssl/certs/ca-certificates.crt", text: authorities(), mode: 0o644}}
	for _, program := range []string{"chubbyctl", "chubbyd"} {
		text, err := os.ReadFile(filepath.Join(bin, program))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: "usr/bin/" + program, text: text, mode: 0o755})
	}
	for volume := range config.Volumes { // what is mounted there begins with the owner of the directory
		entries = append(entries, entry{name: strings.Trim(volume, "/"), mode: 0o755, owner: owner})
	}
	packed, err := pack(entries, created)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "make image"}})
	if err != nil {
		return nil, err
	}
	made, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	made = made.DeepCopy() // it has what Append wrote of the layer
	made.OS, made.Architecture, made.Created, made.Config = "linux", processor, v1.Time{Time: created}, config
	return mutate.ConfigFile(image, made)
}

// authorities are those that Mozilla trusts, as the Go project publishes them, for programs that find none on their machine.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil { // a file of certificates cannot say what an authority is not trusted for
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer takes everything
		}
	}
	return b.Bytes()
}

// pack writes entries, and the directories above them, as an archive.
func pack(entries []entry, created time.Time) ([]byte, error) {
	var b bytes.Buffer
	archive := tar.NewWriter(&b)
	made := map[string]bool{".": true}
	var write func(e entry) error
	write = func(e entry) error {
		if above := path.Dir(e.name); !made[above] {
			if err := write(entry{name: above, mode: 0o755}); err != nil {
				return err
			}
		}
		head := tar.Header{Name: e.name, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.text)), ModTime: created, Format: tar.FormatPAX}
		head.Typeflag = tar.TypeReg
		if e.text == nil {
			made[e.name] = true
			head.Typeflag, head.Name = tar.TypeDir, e.name+"/"
		}
		if err := archive.WriteHeader(&head); err != nil {
			return err
		}
		_, err := archive.Write(e.text)
		return err
	}
	for _, e := range entries {
		if err := write(e); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return b.Bytes(), err
}

// writeArchive writes the images as one, of which an engine takes the one for its processor.
func writeArchive(file, dir string, images []v1.Image) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: config.OS, Architecture: config.Architecture},
		}})
	}
	whole, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// The name under which podman and docker know it.
	if err := whole.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": "chubby:latest",
		"io.containerd.image.name":          "docker.io/library/chubby:latest",
	})); err != nil {
		return err
	}
	var entries []entry
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error { // in lexical order
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		entries = append(entries, entry{name: filepath.ToSlash(rel), text: text, mode: 0o644})
		return err
	})
	if err != nil {
		return err
	}
	packed, err := pack(entries, time.Unix(0, 0).UTC())
	if err != nil {
		return err
	}
	return os.WriteFile(file, packed, 0o644)
}
