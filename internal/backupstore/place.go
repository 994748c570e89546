package backupstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
)

// Place is where backups are kept. Names have no slash in them.
type Place interface {
	// List returns the names of what is there, in no order.
	List(ctx context.Context) ([]string, error)
	// Create makes a file of what write writes. It appears when it is whole; if write fails, there is none. The error is
	// fs.ErrExist if there is one of that name.
	Create(ctx context.Context, name string, write func(io.Writer) error) error
	// Open reads a file. The error is fs.ErrNotExist if there is none.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Remove removes a file; that there is none is no error.
	Remove(ctx context.Context, name string) error
	// String names the place, without secrets.
	String() string
}

// MaxListed is how many files a place may have: more are an error, not memory.
const MaxListed = 100_000

// scheme begins the names of buckets.
const scheme = "s3://"

// IsRemote reports whether the name of a place, or of a file in one, is that of a bucket.
func IsRemote(text string) bool { return strings.HasPrefix(text, scheme) }

// At returns the place that is called so: the absolute path of a directory, or
//
//	s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME]
//
// It is not looked for yet.
func At(text string) (Place, error) {
	if IsRemote(text) {
		return bucketAt(text)
	}
	if !filepath.IsAbs(text) {
		return nil, fmt.Errorf("%q is neither the absolute path of a directory nor s3://BUCKET/PREFIX", text)
	}
	return Directory(filepath.Clean(text)), nil
}

// FileAt returns the place and the name of one file: a path, or s3://BUCKET/NAME[?...] as in At.
func FileAt(text string) (Place, string, error) {
	if !IsRemote(text) {
		dir, name := filepath.Split(text)
		if name == "" || name == "." || name == ".." {
			return nil, "", fmt.Errorf("%q names no file", text)
		}
		return Directory(filepath.Clean(dir)), name, nil
	}
	place, options, _ := strings.Cut(text, "?")
	dir, name := path.Split(strings.TrimPrefix(place, scheme))
	if name == "" || dir == "" {
		return nil, "", fmt.Errorf("%q names no file in a bucket: want s3://BUCKET/NAME", text)
	}
	if options != "" {
		options = "?" + options
	}
	in, err := bucketAt(scheme + strings.TrimSuffix(dir, "/") + options)
	return in, name, err
}

// exists is the error of a name that is taken.
func exists(name string) error {
	return fmt.Errorf("%s is there already, and nothing is replaced: %w", name, fs.ErrExist)
}

var errManyFiles = errors.New("more than 100000 files are there: use a place that has backups only")
