package disk

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	logCacheEntries = 512 // the newest entries, kept in memory; without them every follower's read is the disk's
	snapshotsKept   = 3   // the log reaches back to the last but one; see guardedLogs.DeleteRange
	boltLockTimeout = time.Second
)

// Options is what openStores is told beside the directory.
type Options struct {
	Cell, ID string
	Fatal    func(error)   // told once of the error that ends the replica; called from any goroutine, must not block
	Silence  func()        // makes the replica fall silent at once, before fatal, when the disk has stalled
	stall    time.Duration // default storeStall
	Logger   *slog.Logger
	RaftLog  hclog.Logger // for the libraries that keep the log and the snapshots; default none

	Bootstrap bool // a directory that holds nothing may become a replica's

	segmentSize int // bytes of a segment of WALStore; default 64 MiB. Tests make it small
}

// Stores is a replica's data directory, opened: what Raft keeps there, and the
// lock on it. Its store fields are for Raft alone; see storeGuard.
type Stores struct {
	dir       string
	logs      raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore

	who           *IdentityFile      // whose directory it is
	configuration raft.Configuration // the newest one in the snapshots and the log, empty if there is none
	last          uint64             // the last index when it was opened
	rotten        map[string]bool    // the snapshots that cannot be read, by ID, though Raft does without them
	mark          commitMark

	guard     *storeGuard
	rawLogs   raft.LogStore // the same three, unguarded: for other goroutines than Raft's, as that which opens them
	rawVotes  raft.StableStore
	rawSnaps  raft.SnapshotStore
	closers   []io.Closer
	closeOnce sync.Once
	closeErr  error
}

// Open opens the data directory of a replica, makes it if it is absent or
// empty, and locks it. It refuses one that belongs to another replica, cell or
// log store, that another process has, that has lost a file, or whose log does
// not carry on from a snapshot that can be read.
func Open(dir string, kind LogStore, opts Options) (*Stores, error) {
	store, ok := logStoreNamed(kind)
	if !ok {
		return nil, api.Errorf(api.InvalidArgument, "log store %q: want %s", kind, LogStoreNames(" or "))
	}
	if opts.stall == 0 {
		opts.stall = storeStall
	}
	if opts.RaftLog == nil {
		opts.RaftLog = hclog.NewNullLogger()
	}
	if empty, err := isEmpty(dir); err != nil || empty && !opts.Bootstrap {
		return nil, cmp.Or(err, noData(dir, opts))
	}
	lock, err := openDataDir(dir)
	if err != nil {
		return nil, err
	}
	s := &Stores{dir: dir, closers: []io.Closer{lock}, guard: newStoreGuard(opts.stall, opts.Silence, opts.Fatal)}
	if err := s.open(store, opts); err != nil {
		return nil, errors.Join(openError(dir, err), s.Close())
	}
	return s, nil
}

// open does openStores' work in a locked directory.
func (s *Stores) open(store logStore, opts Options) error {
	whose := marker{Format: markerFormat, Cell: opts.Cell, ID: opts.ID, LogStore: store.name}
	found, err := readMarker(s.dir)
	if err != nil {
		return err
	}
	if found != nil {
		if err := found.check(s.dir, whose, store); err != nil {
			return err
		}
	}
	if err := sweepSnapshots(s.dir); err != nil {
		return err
	}
	if err := sheltered(func() error { return s.openFiles(store, opts) }); err != nil {
		return err
	}
	if found == nil {
		if found, err = s.adopt(whose, opts); err != nil {
			return err
		}
	}
	if s.who, err = readIdentity(s.dir, *found); err != nil {
		return err
	}
	if err := s.checkIdentity(opts); err != nil {
		return err
	}
	if err := sheltered(func() error { return s.checkVoter(*found) }); err != nil {
		return err
	}
	if err := sheltered(s.verify); err != nil {
		return err
	}
	s.logs, err = raft.NewLogCache(logCacheEntries, &guardedLogs{
		inner: s.rawLogs, guard: s.guard, path: filepath.Join(s.dir, store.path), mark: &s.mark,
		rotten: func(index uint64, err error) {
			opts.Logger.Error("an entry of the log is damaged: the newest snapshot takes its place. Look after the disk", "entry", index, "error", err)
		},
	})
	s.stable = &guardedVotes{inner: s.rawVotes, guard: s.guard, path: filepath.Join(s.dir, votesName)}
	s.snapshots = &guardedSnapshots{inner: s.rawSnaps, guard: s.guard, path: filepath.Join(s.dir, snapshotsName), mark: &s.mark, rotten: s.rotten}
	for id := range s.rotten {
		opts.Logger.Error("a snapshot is damaged: an older one and the log take its place. Look after the disk", "snapshot", id)
	}
	return err
}

// openFiles opens the three stores, and makes those that are absent.
func (s *Stores) openFiles(store logStore, opts Options) error {
	if err := s.openVotes(); err != nil {
		return err
	}
	path := filepath.Join(s.dir, snapshotsName)
	files, err := raft.NewFileSnapshotStoreWithLogger(s.dir, math.MaxInt, opts.RaftLog) // see reap
	if err != nil {
		return dataError(path, err, "the snapshots cannot be opened")
	}
	s.rawSnaps = checkedSnapshots{SnapshotStore: files, path: path, cell: s.roster}
	return s.openLog(store, logOptions{logger: opts.RaftLog, segmentSize: opts.segmentSize})
}

// roster returns the cell that the directory is known to be of, nil if none is yet.
func (s *Stores) roster() *identity.Roster {
	if s.who == nil {
		return nil
	}
	return s.who.Get().Roster
}

// openLog opens the log, and takes it if it ends where its note says.
func (s *Stores) openLog(store logStore, opts logOptions) error {
	logs, err := store.open(filepath.Join(s.dir, store.path), opts)
	if err != nil {
		return err
	}
	noted, err := openNotedLog(logs, filepath.Join(s.dir, logNoteName), s.covered)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, noted)
	s.rawLogs = noted
	return nil
}

// Identity returns whose directory it is.
func (s *Stores) Identity() *IdentityFile { return s.who }

// Configuration returns the newest configuration in the snapshots and the log, as they
// were when they were opened; it is empty if there was none.
func (s *Stores) Configuration() raft.Configuration { return s.configuration }

// Last returns the last index in the snapshots and the log, as they were when they were
// opened.
func (s *Stores) Last() uint64 { return s.last }

// Logs returns the log as Raft uses it: an error ends the replica, and the goroutine that
// called.
func (s *Stores) Logs() raft.LogStore { return s.logs }

// Votes returns the votes as Raft uses them; see Logs.
func (s *Stores) Votes() raft.StableStore { return s.stable }

// Snapshots returns the snapshots as Raft uses them: an error ends the replica.
func (s *Stores) Snapshots() raft.SnapshotStore { return s.snapshots }

// Holds returns up to where the directory has every entry, in a snapshot or in the log.
// Raft itself goes back to an older snapshot of the leader's, for a while, and to a
// newer one only when that is applied.
func (s *Stores) Holds(r *raft.Raft) uint64 { return max(r.LastIndex(), s.mark.snapshot()) }

// First returns the first index of the log, or 0 if the log is empty or cannot be read.
// It is for any goroutine: the guard would end one of which Raft knows nothing.
func (s *Stores) First() (index uint64) {
	if err := sheltered(func() (err error) {
		index, err = s.rawLogs.FirstIndex()
		return err
	}); err != nil {
		return 0
	}
	return index
}

// Close closes the files and lets go of the directory. Raft has to have stopped.
// If an operation hangs in the disk still, everything stays open and locked: the
// file is not ours to hand over while it may yet be written.
func (s *Stores) Close() error {
	s.closeOnce.Do(func() {
		if s.guard.active.Load() > 0 {
			s.closeErr = dataError(s.dir, s.guard.failure(), "an operation on the disk has not come back: the directory stays locked until this process ends")
			return
		}
		for i := len(s.closers) - 1; i >= 0; i-- { // the lock last
			s.closeErr = errors.Join(s.closeErr, s.closers[i].Close())
		}
	})
	return s.closeErr
}
