package sequencer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/durable"
)

// The file of a FileStore: a title, one line with the text of each sequencer,
// ordered, and at the end their number, which shows whether the file is
// complete.
const (
	fileTitle = "chubby guard 1: the newest sequencer of each lock"
	fileEnd   = "end %d\n"
	fileMost  = 256 << 20 // bytes; more than any guard writes
)

// FileStore is a Store in one small file. It replaces the file as a whole: it
// writes the new one beside it (name + ".new"), syncs it, renames it over the
// old one, and syncs the directory, so a crash leaves the old or the new file.
// While it is open it holds a lock on name + ".lock", because a second process
// with the same file, such as the old server during a rolling restart, would
// undo its work. If the name is a symbolic link, all of this is done where it
// leads, so a file has one lock by whichever name it is opened. Several Guards
// may share one FileStore: a token that one of them lets in is the newest for
// all, and their sections (Guard.Do) exclude each other. It is safe for
// concurrent use.
type FileStore struct {
	name string // without symbolic links
	lock *os.File
	sync func(directory string) error // makes renames in the directory durable

	// busy is a lock, held by filling it, for newest and for replacing the
	// file.
	busy   chan struct{}
	newest map[storeKey]Sequencer // the contents of the file; nil once closed

	mu    sync.Mutex // guards locks
	locks map[storeKey]*lock
}

// storeKey identifies a lock permanently: a cell bootstrapped again counts from
// the start.
type storeKey struct {
	cell api.CellID
	path api.Path
}

// OpenFileStore opens the store in the file of that name. The file need not
// exist; its directory must, and should be on a local disk. The errors are
// Unavailable if another FileStore has the file open or the system refuses, and
// Corrupt if the file is damaged: then restore it or, once no stale holder of
// any of its locks can be left, delete it. Close it after the last Guard that
// uses it. On systems without flock(2), such as Windows, the caller must make
// sure that only one process opens it.
func OpenFileStore(name string) (*FileStore, error) { return openFileStore(name, durable.SyncDir) }

func openFileStore(name string, sync func(directory string) error) (*FileStore, error) {
	if name == "" {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "open guard file", Message: "it has no name; say where the newest sequencers are to be kept"}
	}
	name, err := withoutLinks(name)
	//mutants: same (what follows fails, too)
	if err != nil {
		return nil, storeError("open", name, err)
	}
	held, err := os.OpenFile(lockName(name), os.O_CREATE|os.O_RDWR, 0o600)
	//mutants: same (what follows fails, too)
	if err != nil {
		return nil, storeError("open", name, err)
	}
	f := &FileStore{name: name, lock: held, sync: sync, busy: make(chan struct{}, 1), locks: make(map[storeKey]*lock)}
	//mutants: same (only Windows does not support it)
	if err := durable.Lock(held); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, errors.Join(&api.Error{Code: api.Unavailable, Op: "lock guard file " + name, Err: err,
			Message: "another process, or another FileStore of this one, has it open; stop that one first"}, held.Close())
	}
	//mutants: same (no test deletes it in between)
	if err := f.checkLock(); err != nil { // somebody has deleted it in between
		//mutants: same (no test deletes it in between)
		return nil, errors.Join(err, held.Close())
	}
	if f.newest, err = readStore(name); err == nil {
		// A process that crashed may have renamed the file without syncing the
		// directory. Sync it now: a crash of the machine must not bring back an
		// older file than the one that is read here.
		if err = sync(filepath.Dir(name)); err != nil {
			err = storeError("sync", name, err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return f, nil
}

// withoutLinks returns the name to which symbolic links lead. The file itself need not exist.
func withoutLinks(name string) (string, error) {
	const most = 40 // as Linux follows
	for range most {
		dir, err := filepath.EvalSymlinks(filepath.Dir(name))
		if err != nil {
			return name, err
		}
		//mutants: same (another name of the same file)
		name = filepath.Join(dir, filepath.Base(name))
		info, err := os.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it is to be made
			return name, nil
		case err != nil:
			return name, err
		case info.Mode()&fs.ModeSymlink == 0:
			return name, nil
		}
		to, err := os.Readlink(name)
		//mutants: same (no test removes a link in between)
		if err != nil {
			//mutants: same (no test removes a link in between)
			return name, err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		name = to
	}
	return name, fmt.Errorf("more than %d symbolic links lead to it", most)
}

func lockName(name string) string { return name + ".lock" }

// checkLock fails if the file that is locked has not its name any more: another process may have made and locked one of that
// name, and has the store open too.
func (f *FileStore) checkLock() error {
	mine, err := f.lock.Stat()
	//mutants: same (an open file has a status)
	if err != nil {
		//mutants: same (an open file has a status)
		return storeError("lock", f.name, err)
	}
	named, err := os.Stat(lockName(f.name))
	//mutants: same (no file is not the same)
	if err == nil && os.SameFile(mine, named) {
		return nil
	}
	return &api.Error{Code: api.Unavailable, Op: "lock guard file " + f.name, Err: err,
		Message: lockName(f.name) + " was deleted or replaced while this FileStore had locked it, so another process may have the store open: nothing was stored; " +
			"stop that process, open the store again, and have nobody delete the lock file"}
}

// lockOf returns what all Guards of this store know of the lock of a sequencer.
func (f *FileStore) lockOf(s Sequencer) *lock {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := storeKey{cell: s.Cell, path: s.Path}
	if f.locks[key] == nil {
		f.locks[key] = newLock()
	}
	return f.locks[key]
}

// Close releases the file. A later Load or Save fails; a second Close returns
// nil.
func (f *FileStore) Close() error {
	f.busy <- struct{}{}
	defer func() { <-f.busy }()
	if f.newest == nil {
		return nil
	}
	f.newest = nil
	//mutants: same (an open file closes)
	if err := f.lock.Close(); err != nil {
		//mutants: same (an open file closes)
		return storeError("close", f.name, err)
	}
	return nil
}

// Load returns the newest sequencer of each lock and cell.
func (f *FileStore) Load(ctx context.Context) ([]Sequencer, error) {
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	defer func() { <-f.busy }()
	return slices.Collect(maps.Values(f.newest)), nil
}

// Save replaces the file by one in which s is the newest of its lock. It
// ignores ctx once it has begun to write.
func (f *FileStore) Save(ctx context.Context, s Sequencer) error {
	if fault := s.fault(); fault != "" {
		return malformed(nil, "this value cannot be stored: %s", fault)
	}
	if err := f.enter(ctx); err != nil {
		return err
	}
	defer func() { <-f.busy }()
	key := storeKey{cell: s.Cell, path: s.Path}
	//mutants: same (an unknown token is 0)
	if known, ok := f.newest[key]; ok && known.Token() > s.Token() {
		return Stale(s, known.Token())
	}
	next := maps.Clone(f.newest)
	next[key] = s
	if err := f.checkLock(); err != nil {
		return err
	}
	if err := f.replace(formatStore(next)); err != nil {
		return storeError("write", f.name, err)
	}
	f.newest = next
	return nil
}

// enter fills busy, or fails if ctx ends or the store is closed.
func (f *FileStore) enter(ctx context.Context) error {
	select {
	case f.busy <- struct{}{}:
	case <-ctx.Done():
		return &api.Error{Code: api.Unavailable, Op: "use guard file " + f.name, Err: context.Cause(ctx),
			Message: "the caller's time ran out while others were being stored"}
	}
	if f.newest == nil {
		<-f.busy
		return &api.Error{Code: api.Unavailable, Op: "use guard file " + f.name, Err: fs.ErrClosed,
			Message: "the FileStore was closed; close it after the last Guard that uses it"}
	}
	return nil
}

func storeError(verb, name string, err error) error {
	return &api.Error{Code: api.Unavailable, Op: verb + " guard file " + name, Err: err,
		Message: "that did not work; see to its directory, its permissions and the space on its disk"}
}

func formatStore(newest map[storeKey]Sequencer) []byte {
	lines := make([]string, 0, len(newest))
	for _, s := range newest {
		lines = append(lines, s.String())
	}
	slices.Sort(lines)
	var b bytes.Buffer
	b.WriteString(fileTitle + "\n")
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(&b, fileEnd, len(lines))
	return b.Bytes()
}

func readStore(name string) (map[storeKey]Sequencer, error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return map[storeKey]Sequencer{}, nil
	}
	//mutants: same (what follows fails, too)
	if err != nil {
		//mutants: same (no test makes a file that only opening refuses, and root opens any)
		return nil, storeError("open", name, err)
	}
	raw, err := io.ReadAll(io.LimitReader(file, fileMost))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, storeError("read", name, err)
	}
	newest, err := parseStore(string(raw))
	if err != nil {
		return nil, &api.Error{Code: api.Corrupt, Op: "read guard file " + name, Err: err,
			Message: "it is damaged; restore it, or, once no stale holder of these locks can be left, delete it"}
	}
	return newest, nil
}

// parseStore reads what formatStore writes.
func parseStore(text string) (map[storeKey]Sequencer, error) {
	body, ok := strings.CutPrefix(text, fileTitle+"\n")
	if !ok {
		return nil, fmt.Errorf("it does not begin with %q", fileTitle)
	}
	newest := make(map[storeKey]Sequencer)
	for {
		line, rest, whole := strings.Cut(body, "\n")
		if !whole {
			return nil, fmt.Errorf("it breaks off after %d sequencers", len(newest))
		}
		if line+"\n" == fmt.Sprintf(fileEnd, len(newest)) && rest == "" {
			return newest, nil
		}
		s, err := Parse(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(newest)+2, err)
		}
		key := storeKey{cell: s.Cell, path: s.Path}
		if _, twice := newest[key]; twice {
			return nil, fmt.Errorf("line %d: %s is there twice", len(newest)+2, s.Path)
		}
		newest[key] = s
		body = rest
	}
}

// replace leaves either the old or the new contents in the file, whatever
// happens. When it returns nil, the new contents are durable. It overwrites
// what a crash left behind. The caller has filled busy.
func (f *FileStore) replace(contents []byte) error {
	temporary := f.name + ".new"
	if err := durable.WriteFile(temporary, contents, 0o600); err != nil {
		return err
	}
	if err := os.Rename(temporary, f.name); err != nil {
		return err
	}
	return f.sync(filepath.Dir(f.name))
}
