package backupstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/chubbylock/chubby/internal/durable"
)

// Directory is a directory with backups; it must be there. What is being written has a name that begins with a dot.
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

// Write implements io.Writer.
func (w writerUntil) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.w.Write(p)
}
