package audit

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/chubbylock/chubby/internal/durable"
	"github.com/chubbylock/chubby/session"
)

// Why a record is not written.
var (
	errClosed = errors.New("the replica is stopping")
	errFull   = errors.New("the file is full, and cannot be renamed")
)

// renameAgain is how long after a failure it is tried again to rename a file that is full.
const renameAgain = 10 * time.Second

// file is the file of a log. One goroutine uses it.
type file struct {
	cfg     Config
	f       *os.File // nil if none is open
	info    os.FileInfo
	size    int64
	torn    bool  // it ends within a line
	unnamed bool  // it was empty when it was opened, so its name may not survive a crash of the machine
	earlier error // why an earlier file could not be synced; until sync returns it

	stuck bool            // it is full, and could not be renamed
	again session.Instant // when that is tried again, if stuck

	syncFile func(*os.File) error
	syncDir  func(name string) error
}

func newFile(cfg Config) *file {
	return &file{cfg: cfg, syncFile: (*os.File).Sync, syncDir: durable.SyncDir}
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
	a.f, a.info, a.size, a.torn, a.unnamed = f, info, info.Size(), false, info.Size() == 0
	if a.size > 0 {
		last := make([]byte, 1)
		_, err := f.ReadAt(last, a.size-1)
		a.torn = err == nil && last[0] != '\n' // a crash, or a full disk
	}
	return nil
}

// write appends a line. A full file that cannot be renamed takes as much again of acts.
func (a *file) write(line []byte, act bool) error {
	if err := a.prepare(int64(len(line))); err != nil {
		return err
	}
	//mutant: if a.stuck && (true || a.size+int64(len(line)) > 2*a.cfg.Size) { //by TestFileThatCannotBeRenamed of ./cell/internal/audit
	if a.stuck && (!act || a.size+int64(len(line)) > 2*a.cfg.Size) {
		return errFull
	}
	if a.torn {
		//mutant: /* nothing */ //by TestFileIsTakenAway of ./cell/internal/audit
		line = append([]byte("\n"), line...)
	}
	n, err := a.f.Write(line)
	a.size += int64(n)
	if n > 0 {
		a.torn = line[n-1] != '\n'
	}
	return err
}

// prepare opens the file again if another has taken its place, and begins a new one if it is full.
func (a *file) prepare(n int64) error {
	if a.cfg.File == Stdout {
		return nil
	}
	if a.f != nil {
		//mutant: if now, err := os.Stat(a.cfg.File); err != nil && now != nil { //by TestFileIsTakenAway of ./cell/internal/audit
		if now, err := os.Stat(a.cfg.File); err != nil || !os.SameFile(now, a.info) {
			a.leave()
		}
	}
	if a.f != nil && a.cfg.Files > 0 && a.size > 0 && a.size+n > a.cfg.Size && a.info.Mode().IsRegular() {
		a.begin()
	} else {
		a.stuck = false // it is another file, or an operator has made room
	}
	if a.f == nil {
		return a.open()
	}
	return nil
}

// begin renames a full file, so that prepare begins a new one. If that fails, the file is used for a while longer.
func (a *file) begin() {
	now := a.cfg.Clock()
	if a.stuck && now < a.again {
		return
	}
	a.leave()
	err := a.rename()
	if a.stuck = err != nil; a.stuck {
		a.again = now.Add(renameAgain)
		a.cfg.Failed()
		a.cfg.Logger.Error("a file of the audit log is full, and cannot be renamed: acts are written until it has twice its size, and refusals are counted alone", "event", "audit_fails", "file", a.cfg.File, "error", err)
	}
}

// rename makes the file the youngest of the kept ones. These move up to the first free number, so that a second
// try moves none again; without one, the oldest goes.
func (a *file) rename() error {
	older := func(n int) string { return fmt.Sprintf("%s.%d", a.cfg.File, n) }
	free := 1
	for ; free < a.cfg.Files; free++ {
		if _, err := os.Lstat(older(free)); errors.Is(err, os.ErrNotExist) {
			//mutant: continue //by TestKeptFilesMoveOnce of ./cell/internal/audit
			break
		}
	}
	for n := free - 1; n > 0; n-- {
		if err := os.Rename(older(n), older(n+1)); err != nil {
			return err
		}
	}
	return os.Rename(a.cfg.File, older(1))
}

// leave syncs and closes a file before another follows: sync will only know the other.
func (a *file) leave() {
	//mutant: /* nothing */ //by TestFilesAreSyncedBeforeTheNext of ./cell/internal/audit
	a.earlier = errors.Join(a.earlier, a.syncThis())
	a.close()
}

// sync makes all that was written survive a crash of the machine, also in earlier files.
func (a *file) sync() error {
	err := errors.Join(a.earlier, a.syncThis())
	a.earlier = nil
	return err
}

// syncThis syncs the open file, and its name in the directory, if it is a regular one.
func (a *file) syncThis() error {
	if a.f == nil || a.info == nil || !a.info.Mode().IsRegular() {
		return nil
	}
	err := a.syncFile(a.f)
	//mutant: if false { //by TestFilesAreSyncedBeforeTheNext of ./cell/internal/audit
	if a.unnamed {
		a.unnamed = false
		target, _ := filepath.EvalSymlinks(a.cfg.File) // "" if it was renamed or removed
		err = errors.Join(err, a.syncDir(filepath.Dir(cmp.Or(target, a.cfg.File))))
	}
	return err
}

func (a *file) close() {
	if a.f != nil && a.f != os.Stdout {
		_ = a.f.Close() // what had to survive was synced
	}
	a.f = nil
}
