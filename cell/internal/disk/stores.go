package disk

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	logCacheEntries = 512 // the newest entries, in memory: else every follower's read goes to the disk
	maxSnapshots    = 3   // the log reaches back to the last but one; see failStopLogs.DeleteRange
	boltLockTimeout = time.Second
)

// Appended describes entries that were written to the log and synced.
type Appended struct {
	First, Last uint64 // indexes
	From, To    session.Instant
}

// Options configures Open.
type Options struct {
	Cell, ID string
	Fatal    func(error)   // called once, on any goroutine, with the error that ends the replica; must not block
	Silence  func()        // called before Fatal when the disk has stalled, to silence the replica immediately
	Stall    time.Duration // the longest operation on the log or the votes on a working disk; default maxStoreWait
	Logger   *slog.Logger
	RaftLog  hclog.Logger // for the libraries of the log and the snapshots; default none

	Clock    session.Clock  // required with Appended
	Appended func(Appended) // called when entries were written and synced; may be nil

	Bootstrap bool // an empty directory may become a replica's
	Inspect   bool // no replica will run: the directory may be a contradicted replica's

	segmentSize int // bytes of a segment of WALStore; default 64 MiB
}

// Stores is a replica's open data directory, with its lock. Its store fields are for Raft alone; see failStop.
type Stores struct {
	dir       string
	logs      raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore

	who           *IdentityFile      // the directory's identity
	configuration raft.Configuration // the newest in the snapshots and the log, or empty
	last          uint64             // the last index at its opening
	unreadable    map[string]bool    // unreadable snapshots that Raft does not need, by ID
	mark          commitMark
	pending       *pendingLogs

	failStop  *failStop
	rawLogs   raft.LogStore // the same three without a fail-stop, for goroutines other than Raft's
	rawVotes  raft.StableStore
	rawSnaps  raft.SnapshotStore
	closers   []io.Closer
	closeOnce sync.Once
	closeErr  error
}

// Open opens and locks the data directory of a replica, and creates it if it is absent or empty. It rejects a
// directory that belongs to another replica, cell or log store, that another process has locked, that has lost
// a file, or whose log does not continue a readable snapshot.
func Open(dir string, kind LogStore, opts Options) (*Stores, error) {
	store, ok := logStoreNamed(kind)
	if !ok {
		return nil, api.Errorf(api.InvalidArgument, "log store %q: want %s", kind, LogStoreNames(" or "))
	}
	if opts.Stall == 0 {
		opts.Stall = maxStoreWait
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
	//mutant: s := &Stores{dir: dir, closers: []io.Closer{lock}, failStop: newFailStop(maxStoreWait, opts.Silence, opts.Fatal)}
	s := &Stores{dir: dir, closers: []io.Closer{lock}, failStop: newFailStop(opts.Stall, opts.Silence, opts.Fatal)}
	if err := s.open(store, opts); err != nil {
		//mutant: return nil, errors.Join(err, s.Close())
		return nil, errors.Join(openError(dir, store, err), s.Close())
	}
	return s, nil
}

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
	if !opts.Inspect { // before any change
		if err := checkContradiction(s.dir); err != nil {
			return err
		}
	}
	if err := sweepSnapshots(s.dir); err != nil {
		return err
	}
	if err := catchPanic(func() error { return s.openFiles(store, opts) }); err != nil {
		return err
	}
	if found == nil {
		if found, err = s.initialize(whose, opts); err != nil {
			return err
		}
	}
	if s.who, err = readIdentity(s.dir, *found); err != nil {
		return err
	}
	if err := s.checkIdentity(opts); err != nil {
		return err
	}
	if err := catchPanic(func() error { return s.checkVoter(*found) }); err != nil {
		return err
	}
	if err := catchPanic(s.verify); err != nil {
		return err
	}
	s.pending = &pendingLogs{failStopLogs: &failStopLogs{
		inner:    s.rawLogs,
		failStop: s.failStop,
		path:     filepath.Join(s.dir, store.path),
		mark:     &s.mark,
		clock:    opts.Clock,
		appended: opts.Appended,
		onDamaged: func(index uint64, err error) {
			opts.Logger.Error("an entry of the log is damaged: the newest snapshot takes its place. Look after the disk", "event", "disk_damaged", "index", index, "error", err)
		},
	}}
	s.logs, err = raft.NewLogCache(logCacheEntries, s.pending)
	s.stable = &failStopVotes{inner: s.rawVotes, failStop: s.failStop, path: filepath.Join(s.dir, votesName), drain: s.pending.drain}
	s.snapshots = &failStopSnapshots{
		inner:      s.rawSnaps,
		failStop:   s.failStop,
		path:       filepath.Join(s.dir, snapshotsName),
		mark:       &s.mark,
		unreadable: s.unreadable,
	}
	for id := range s.unreadable {
		opts.Logger.Error("a snapshot is damaged: an older one and the log take its place. Look after the disk", "event", "disk_damaged", "snapshot", id)
	}
	return err
}

func (s *Stores) openFiles(store logStore, opts Options) error {
	if err := s.openVotes(); err != nil {
		return err
	}
	path := filepath.Join(s.dir, snapshotsName)
	//mutant: files, err := raft.NewFileSnapshotStoreWithLogger(s.dir, min(math.MaxInt, maxSnapshots), opts.RaftLog)
	files, err := raft.NewFileSnapshotStoreWithLogger(s.dir, math.MaxInt, opts.RaftLog) // see removeOld
	if err != nil {
		return dataError(path, err, "the snapshots cannot be opened")
	}
	// Package raft lets everybody read it, and its files by the umask. A snapshot has the cell's secret.
	if err := os.Chmod(path, 0o700); err != nil {
		return dataError(path, err, "the snapshots cannot be kept from other users")
	}
	s.rawSnaps = checkedSnapshots{SnapshotStore: files, path: path, roster: s.roster}
	return s.openLog(store, opts)
}

func (s *Stores) roster() *identity.Roster {
	if s.who == nil {
		return nil
	}
	return s.who.Get().Roster
}

// openLog opens the log, and checks its end against its note.
func (s *Stores) openLog(store logStore, opts Options) error {
	logs, err := store.open(filepath.Join(s.dir, store.path), opts)
	if err != nil {
		return err
	}
	//mutant: if store.name == BoltStore { s.closers, s.rawLogs = append(s.closers, logs), logs; return nil }; noted, err := openNotedLog(logs, filepath.Join(s.dir, logNoteName), s.covered)
	noted, err := openNotedLog(logs, filepath.Join(s.dir, logNoteName), s.covered)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, noted)
	s.rawLogs = noted
	return nil
}

// Identity returns the directory's identity.
func (s *Stores) Identity() *IdentityFile { return s.who }

// Configuration returns the newest configuration in the snapshots and the log at their opening; empty without one.
func (s *Stores) Configuration() raft.Configuration { return s.configuration }

// Last returns the last index in the snapshots and the log at their opening.
func (s *Stores) Last() uint64 { return s.last }

// Logs returns the log for Raft: an error ends the replica, and the calling goroutine.
func (s *Stores) Logs() raft.LogStore { return s.logs }

// Votes returns the votes for Raft; see Logs.
func (s *Stores) Votes() raft.StableStore { return s.stable }

// Snapshots returns the snapshots for Raft: an error ends the replica.
func (s *Stores) Snapshots() raft.SnapshotStore { return s.snapshots }

// Holds returns the index up to which the directory has every entry, in a snapshot or the log. Raft's own index
// goes back to an older snapshot of the leader for a while, and to a newer one only once applied.
func (s *Stores) Holds(r *raft.Raft) uint64 {
	return max(s.Stored(r.LastIndex()), s.mark.snapshotIndex())
}

// Stored returns the lower of index, which Raft takes for stored, and the index up to which its entries are stored.
// No message may say that a later entry is committed; see pendingLogs.
func (s *Stores) Stored(index uint64) uint64 { return s.pending.storedUpTo(index) }

// First returns the first index of the log, or 0 if it is empty or unreadable. It is safe for concurrent use:
// it avoids the fail-stop, which would end the calling goroutine.
func (s *Stores) First() (index uint64) {
	if err := catchPanic(func() (err error) {
		//mutant: index, err = s.logs.FirstIndex() //by TestStartGoesOnWhenTheStoreFails of ./cell
		index, err = s.rawLogs.FirstIndex()
		return err
	}); err != nil {
		return 0
	}
	return index
}

// Close closes the files and unlocks the directory. Raft must have stopped. If an operation still hangs,
// everything stays open and locked, since the file may yet be written.
func (s *Stores) Close() error {
	s.closeOnce.Do(func() {
		s.awaitWriter()
		if s.failStop.active.Load() > 0 {
			s.closeErr = dataError(s.dir, s.failStop.failure(), "an operation on the disk has not come back: the directory stays locked until this process ends")
			return
		}
		for i := len(s.closers) - 1; i >= 0; i-- { // the lock is the first, so it closes last
			s.closeErr = errors.Join(s.closeErr, s.closers[i].Close())
		}
	})
	return s.closeErr
}

// awaitWriter waits for what is written in the background, as Raft does not. Each write is given the time that it may
// take: the disk may be slow, and then several come one after another. After a failure it waits once more for as long.
func (s *Stores) awaitWriter() {
	if s.pending == nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.pending.work.Wait()
	}()
	select {
	case <-ended:
		return
	case <-s.failStop.ended:
	}
	select {
	case <-ended:
	case <-time.After(s.failStop.stall):
	}
}

// Bootstrap writes the first entry of the log, the configuration, the same on every member; then it records
// that the cell has begun here.
func (s *Stores) Bootstrap(conf *raft.Config, trans raft.Transport) error {
	used, err := s.holdsCell()
	if err != nil {
		return err
	}
	if used {
		return dataError(s.dir, raft.ErrCantBootstrap, "it holds a cell already")
	}
	r := s.who.Get().Roster
	for _, m := range r.Members {
		s.configuration.Servers = append(s.configuration.Servers, raft.Server{ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.Raft)})
	}
	err = s.failStop.callOnGoroutine(func() error {
		// Raft bootstraps again after an interruption only if the term is 0.
		if err := s.stable.SetUint64([]byte(currentTermKey), 0); err != nil {
			return err
		}
		return raft.BootstrapCluster(conf, s.logs, s.stable, s.snapshots, trans, s.configuration)
	})
	if err != nil {
		return err
	}
	return s.who.Store(r, true)
}

// StartRaft starts Raft on the stores. No message from trans may reach Raft before it returns.
func (s *Stores) StartRaft(conf *raft.Config, fsm raft.FSM, trans raft.Transport) (r *raft.Raft, err error) {
	err = s.failStop.callOnGoroutine(func() error {
		return catchPanic(func() (err error) { // Raft panics if it cannot restore something
			r, err = raft.NewRaft(conf, appliesStored{fsm, s.pending}, s.logs, s.stable, s.snapshots, trans)
			return err
		})
	})
	switch {
	case err == nil:
	case s.failStop.failure() != nil:
		return nil, err
	default: // no store failed
		return nil, damaged(s.dir, err, "Raft cannot go on from the snapshots and the log in it")
	}
	//mutant: if has := r.LastIndex(); has < s.last && false {
	if has := r.LastIndex(); has < s.last { // Raft has not talked to other replicas yet
		return nil, errors.Join(damaged(filepath.Join(s.dir, snapshotsName), nil, "the snapshot of entry %d cannot be restored, and without it the data ends at entry %d", s.last, has), r.Shutdown().Error())
	}
	//mutant: s.mark.followRaft(r.CommitIndex)
	s.mark.followRaft(func() uint64 { return s.Stored(r.CommitIndex()) })
	leads := func() bool { return r.State() == raft.Leader }
	s.pending.leads.Store(&leads)
	return r, nil
}
