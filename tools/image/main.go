// Command image builds the container image of a commit, for several processors, into one OCI archive. It needs neither a
// daemon nor a base image, and two builds of one commit are the same, byte for byte. What the image runs, and as whom, is
// read from the last stage of deploy/container/Containerfile, so that both ways lead to the same image. Run it in the tools
// directory, as `make image` does.
package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	source := flag.String("source", "..", "the repository")
	archive := flag.String("output", "../dist/chubby-image.tar", "the archive to write")
	flag.Parse()
	if err := build(*source, *archive); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

// processors are those that the image is for.
func processors() []string { return []string{"amd64", "arm64"} }

func build(source, archive string) (err error) {
	text, err := os.ReadFile(filepath.Join(source, "deploy/container/Containerfile"))
	if err != nil {
		return err
	}
	config, err := parseStage(string(text))
	if err != nil {
		return err
	}
	created, err := commitTime(source)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "chubby-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	var images []v1.Image
	for _, processor := range processors() {
		bin := filepath.Join(scratch, processor)
		if err := compile(source, bin, processor); err != nil {
			return err
		}
		info, err := buildinfo.ReadFile(filepath.Join(bin, "chubbyd"))
		if err != nil {
			return err
		}
		config.Labels = labels(info)
		one, err := assemble(config, processor, bin, created)
		if err != nil {
			return err
		}
		images = append(images, one)
		fmt.Printf("linux/%s: chubbyd %s\n", processor, info.Main.Version)
	}
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return err
	}
	if err := writeArchive(archive, filepath.Join(scratch, "layout"), images); err != nil {
		return err
	}
	fmt.Println("wrote", archive)
	return nil
}

// compile builds the programs as .goreleaser.yaml does.
func compile(source, bin, processor string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", bin+string(filepath.Separator), "./cmd/chubbyd", "./cmd/chubbyctl")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+processor)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// commitTime is when the commit that is checked out was made: everything in the image is of that time.
func commitTime(source string) (time.Time, error) {
	cmd := exec.Command("git", "log", "-1", "--format=%ct")
	cmd.Dir = source
	out, err := cmd.Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("git log: %w", err)
	}
	seconds, err := strconv.ParseInt(string(bytes.TrimSpace(out)), 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}

// labels says what the image was built from, as the Go tool has recorded it in the program.
func labels(info *buildinfo.BuildInfo) map[string]string {
	all := map[string]string{
		"org.opencontainers.image.title":    "chubby",
		"org.opencontainers.image.source":   "https://github.com/chubbylock/chubby",
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.version":  info.Main.Version,
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			all["org.opencontainers.image.revision"] = s.Value
		}
	}
	return all
}
