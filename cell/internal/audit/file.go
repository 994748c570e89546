package audit

import (
	"errors"
	"fmt"
	"os"
)

// errClosed is why nothing can be recorded any more.
var errClosed = errors.New("the replica is stopping")

// file is the file of a log. One goroutine uses it.
type file struct {
	cfg  Config
	f    *os.File
	info os.FileInfo
	size int64
	torn bool // it ends within a line
}

// open opens the file.
func (a *file) open() error {
	if a.cfg.File == Stdout {
		a.f = os.Stdout
		return nil
	}
	f, err := os.OpenFile(a.cfg.File, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	a.f, a.info, a.size, a.torn = f, info, info.Size(), false
	if a.size > 0 {
		last := make([]byte, 1)
		_, err := f.ReadAt(last, a.size-1)
		a.torn = err == nil && last[0] != '\n' // a crash, or a full disk
	}
	return nil
}

// write appends a line.
func (a *file) write(line []byte) error {
	if err := a.prepare(int64(len(line))); err != nil {
		return err
	}
	if a.torn {
		line = append([]byte("\n"), line...)
	}
	n, err := a.f.Write(line)
	a.size += int64(n)
	if n > 0 {
		a.torn = line[n-1] != '\n'
	}
	return err
}

// prepare opens the file again if it is another by now, and begins a new one if it is full.
func (a *file) prepare(n int64) error {
	if a.cfg.File == Stdout {
		return nil
	}
	if a.f != nil {
		if now, err := os.Stat(a.cfg.File); err != nil || !os.SameFile(now, a.info) {
			a.close()
		}
	}
	if a.f != nil && a.cfg.Files > 0 && a.size > 0 && a.size+n > a.cfg.Size && a.info.Mode().IsRegular() {
		a.close()
		if err := a.rename(); err != nil {
			return err
		}
	}
	if a.f == nil {
		return a.open()
	}
	return nil
}

// rename makes the file the youngest of those that are kept, and removes the oldest.
func (a *file) rename() error {
	older := func(n int) string { return fmt.Sprintf("%s.%d", a.cfg.File, n) }
	for n := a.cfg.Files - 1; n > 0; n-- {
		if err := os.Rename(older(n), older(n+1)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return os.Rename(a.cfg.File, older(1))
}

// sync has what was written survive a crash of the machine. What is no regular file has nothing to survive.
func (a *file) sync() error {
	if a.f == nil || a.info == nil || !a.info.Mode().IsRegular() {
		return nil
	}
	return a.f.Sync()
}

func (a *file) close() {
	if a.f != nil && a.f != os.Stdout {
		_ = a.f.Close() // what had to survive was synced
	}
	a.f = nil
}
