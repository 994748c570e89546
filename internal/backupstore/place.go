package backupstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/chubbylock/chubby/internal/durable"
)

// Place is where backups are kept. Names have no slash in them.
type Place interface {
	// List returns the names of all files, in no order.
	List(ctx context.Context) ([]string, error)
	// Create makes a file of what write writes. It appears when it is whole, and not if write fails. It fails with
	// fs.ErrExist if the name is taken.
	Create(ctx context.Context, name string, write func(io.Writer) error) error
	// Open reads a file. It fails with fs.ErrNotExist if the file is absent.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Remove removes a file, which may be absent.
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

// At returns the place with that name: the absolute path of a directory, or
//
//	s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME]
//
// It does not look for it yet.
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

// exists returns the error of a taken name.
func exists(name string) error {
	return fmt.Errorf("%s is there already, and nothing is replaced: %w", name, fs.ErrExist)
}

var errManyFiles = errors.New("more than 100000 files are there: use a place that has backups only")

// Directory is an existing directory with backups. The name of an unfinished file begins with a dot.
type Directory string

// String implements Place.
func (d Directory) String() string { return string(d) }

// List implements Place.
func (d Directory) List(context.Context) ([]string, error) {
	f, err := os.Open(string(d))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(MaxListed + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > MaxListed {
		return nil, errManyFiles
	}
	return names, nil
}

// Create implements Place. The file is on the disk when it returns.
func (d Directory) Create(ctx context.Context, name string, write func(io.Writer) error) error {
	whole := filepath.Join(string(d), name)
	switch _, err := os.Lstat(whole); {
	case err == nil:
		return exists(whole)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	file, err := os.CreateTemp(string(d), "."+name+".*")
	if err != nil {
		return err
	}
	if err = write(writerUntil{ctx, durable.NewSteadyWriter(file, file.Sync)}); err == nil { // a replica's log may be on this disk
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Link(file.Name(), whole) // unlike a rename, it replaces nothing
	}
	if err = errors.Join(err, os.Remove(file.Name())); err == nil {
		err = durable.SyncDir(string(d))
	}
	if errors.Is(err, fs.ErrExist) {
		return exists(whole)
	}
	return err
}

// Open implements Place.
func (d Directory) Open(_ context.Context, name string) (io.ReadCloser, error) {
	f, err := os.Open(filepath.Join(string(d), name))
	if err != nil {
		return nil, err
	}
	if about, err := f.Stat(); err != nil || about.IsDir() {
		return nil, errors.Join(fmt.Errorf("%s is a directory", f.Name()), err, f.Close())
	}
	return f, nil
}

// Remove implements Place.
func (d Directory) Remove(_ context.Context, name string) error {
	if err := os.Remove(filepath.Join(string(d), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.SyncDir(string(d))
}

// writerUntil writes until its context ends.
type writerUntil struct {
	ctx context.Context
	w   io.Writer
}

func (w writerUntil) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.w.Write(p)
}
