package disk

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
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

// boltOptions are those of both bbolt files. Without a synced freelist a commit
// costs the same however many pages are free; opening then scans the file.
func boltOptions() *bbolt.Options {
	return &bbolt.Options{Timeout: boltLockTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}
}

func (s *Stores) openVotes() error {
	path := filepath.Join(s.dir, votesName)
	if err := makeFile(path, func(path string) (io.Closer, error) {
		db, err := bbolt.Open(path, 0o600, boltOptions())
		if err != nil {
			return nil, err
		}
		return db, initVotes(db)
	}); err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, boltOptions())
	if err != nil {
		return dataError(path, err, "the votes cannot be opened")
	}
	s.closers = append(s.closers, db)
	votes := &voteStore{db: db}
	s.rawVotes = votes
	if err := sheltered(votes.verify); err != nil {
		return damaged(path, err, "the votes are damaged")
	}
	return nil
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

// covered returns the index up to which a snapshot that can be read has everything, 0 if
// there is none.
func (s *Stores) covered() uint64 {
	if s.rawSnaps == nil {
		return 0
	}
	index, _, err := s.readableSnapshot()
	if err != nil {
		return 0 // what is wrong is told when it is needed
	}
	return index
}

// makeFile makes a bbolt file, if it is absent, under another name first: bbolt
// is not crash-safe while it makes one, and never syncs the directory.
func makeFile(path string, create func(path string) (io.Closer, error)) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return dataError(path, err, "the file cannot be looked at")
		}
		return nil
	}
	if err := os.RemoveAll(path + newSuffix); err != nil {
		return dataError(path+newSuffix, err, "the remains of an interrupted start cannot be removed")
	}
	db, err := create(path + newSuffix)
	if db != nil {
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		return dataError(path, err, "the file cannot be made")
	}
	return moveIntoPlace(path)
}

// noData is the refusal of a directory that holds nothing.
func noData(dir string, opts Options) error {
	return identity.Refused("the data directory %s of replica %s holds no data. If cell %s is new, start each of its replicas with --bootstrap (bootstrap: true, CHUBBYD_BOOTSTRAP=true). "+
		"If this replica has run before, its data is missing: is the disk mounted, is the path right? If its data is lost, it must not vote under its ID again: "+
		"the other replicas go on serving while they are a majority, and this version cannot replace a replica", dir, opts.ID, opts.Cell)
}

// adopt makes the directory this replica's. Without a marker it holds the empty
// stores of a start that was interrupted, or it is not ours.
func (s *Stores) adopt(whose marker, opts Options) (*marker, error) {
	used, err := s.holdsCell()
	if err != nil {
		return nil, err
	}
	if used {
		return nil, identity.Refuse(dataError(s.dir, nil, "it holds a replica's data but not %s, which says whose: bring that file back, or name another directory", markerName))
	}
	if !opts.Bootstrap {
		return nil, noData(s.dir, opts)
	}
	if whose.Incarnation, err = identity.RandomID(); err != nil {
		return nil, err
	}
	if err := sheltered(func() error { return s.rawVotes.Set([]byte(voterKey), []byte(whose.Incarnation)) }); err != nil {
		return nil, dataError(filepath.Join(s.dir, votesName), err, "it cannot be written")
	}
	return &whose, writeMarker(s.dir, whose)
}

// checkVoter refuses votes that another replica gave: with them this one could vote
// again in a term in which it has voted.
func (s *Stores) checkVoter(m marker) error {
	path := filepath.Join(s.dir, votesName)
	voter, err := s.rawVotes.Get([]byte(voterKey))
	if err == nil && voter == nil { // an earlier version did not say whose they are
		err = s.rawVotes.Set([]byte(voterKey), []byte(m.Incarnation))
		voter = []byte(m.Incarnation)
	}
	switch {
	case err != nil:
		return dataError(path, err, "the votes cannot be read, or written")
	case string(voter) != m.Incarnation:
		return identity.Refused("the votes in %s are of incarnation %.12s, and this is replica %s, of incarnation %.12s: the files are not of one replica. Put back the files that belong together; otherwise %s",
			path, voter, m.ID, m.Incarnation, identity.LossAdvice)
	}
	return nil
}

// checkIdentity compares what the directory says of its cell with what the
// stores hold.
func (s *Stores) checkIdentity(opts Options) error {
	used, err := s.holdsCell()
	if err != nil {
		return err
	}
	now := s.who.Get()
	missing := func(name string) error {
		return damaged(filepath.Join(s.dir, name), nil, "it is missing or empty, though this replica has run here. Without it the replica would break promises it gave: bring it back. If it is lost")
	}
	switch {
	case used && now.Roster == nil:
		return missing(rosterName)
	case !used && now.Begun:
		return missing(votesName)
	case used && !now.Begun: // a crash came between the first entry and this
		return s.who.Store(now.Roster, true)
	case now.Roster == nil && !opts.Bootstrap:
		return noData(s.dir, opts)
	}
	return nil
}

// holdsCell reports whether the directory holds a cell's data already: a vote,
// an entry or a snapshot. If not, the cell may be bootstrapped in it, once.
func (s *Stores) holdsCell() (used bool, err error) {
	err = sheltered(func() error {
		used, err = raft.HasExistingState(s.rawLogs, s.rawVotes, s.rawSnaps)
		if err != nil || !used {
			return err
		}
		interrupted, err := s.interruptedBootstrap()
		used = !interrupted
		return err
	})
	if err != nil {
		return false, dataError(s.dir, err, "its data cannot be read")
	}
	return used, nil
}

// interruptedBootstrap reports that raft.BootstrapCluster came as far as the
// first term and not to the first entry. A replica in that state has voted for
// nobody (a vote is of a later term) and acknowledged nothing.
func (s *Stores) interruptedBootstrap() (bool, error) {
	term, err := s.rawVotes.GetUint64([]byte(currentTermKey))
	if err != nil || term != 1 {
		return false, err
	}
	vote, err := s.rawVotes.GetUint64([]byte(voteTermKey))
	if err != nil || vote != 0 {
		return false, err
	}
	last, err := s.rawLogs.LastIndex()
	if err != nil || last != 0 {
		return false, err
	}
	list, err := s.rawSnaps.List()
	return len(list) == 0, err
}

// verify reads what Raft is about to read and would panic over: the newest
// snapshot, and every log entry after it, which must follow without a gap.
func (s *Stores) verify() error {
	newest, err := newestSnapshot(s.dir)
	if err != nil {
		return err
	}
	base, term, err := s.readableSnapshot()
	if err != nil {
		return err
	}
	if err := s.emptyOvertaken(base, term); err != nil {
		return err
	}
	last, err := s.rawLogs.LastIndex()
	if err != nil {
		return dataError(s.dir, err, "the log cannot be read")
	}
	s.last = max(base, last)
	s.mark.snapshotted(base, term)
	for index := base + 1; index <= last; index++ {
		var entry raft.Log
		mark, err := readMarked(s.rawLogs, index, &entry)
		if err != nil {
			return damaged(s.dir, err, "log entry %d of %d cannot be read (snapshot at %d)", index, last, base)
		}
		if entry.Term < term {
			return damaged(s.dir, nil, "log entry %d is of term %d, the one before it of %d", index, entry.Term, term)
		}
		term = entry.Term
		s.mark.found(mark)
		if entry.Type == raft.LogConfiguration {
			s.configuration = raft.DecodeConfiguration(entry.Data)
		}
	}
	if err := s.checkEnd(newest); err != nil {
		return err
	}
	return s.checkVotes(term)
}

// checkEnd refuses data that ends before what this replica has held. A snapshot of the
// master's takes the place of the whole log: if it cannot be read any more, an older
// one and an empty log follow each other without a gap.
func (s *Stores) checkEnd(newest uint64) error {
	switch {
	case newest > s.last:
		return damaged(filepath.Join(s.dir, snapshotsName), nil, "the snapshot of entry %d cannot be read, and without it the data ends at entry %d", newest, s.last)
	case s.last == 0 && s.who.Get().Begun:
		return damaged(s.dir, nil, "it has neither an entry nor a snapshot, though this replica has run here")
	}
	return nil
}

// checkVotes compares the votes with the term of the newest entry. Raft writes down
// a term before it stores anything of it: votes that end in an earlier one are an
// old copy, and would be given again.
func (s *Stores) checkVotes(term uint64) error {
	path := filepath.Join(s.dir, votesName)
	current, err := s.rawVotes.GetUint64([]byte(currentTermKey))
	if err != nil {
		return dataError(path, err, "the votes cannot be read")
	}
	if current < term {
		return damaged(path, nil, "the votes end in term %d, and the log has an entry of term %d: they are an old copy", current, term)
	}
	return nil
}

// readableSnapshot returns the index and the term of the newest snapshot whose
// checksum is right, which is the one that Raft will restore; 0 if there is none. If
// there are only bad ones it fails, as Raft would.
func (s *Stores) readableSnapshot() (index, term uint64, err error) {
	list, err := s.rawSnaps.List()
	if err != nil {
		return 0, 0, dataError(s.dir, err, "the snapshots cannot be listed")
	}
	s.rotten = map[string]bool{}
	for _, meta := range list {
		var r io.ReadCloser
		if _, r, err = s.rawSnaps.Open(meta.ID); err != nil {
			if denied(err) {
				return 0, 0, dataError(s.dir, err, "snapshot %s cannot be opened", meta.ID)
			}
			s.rotten[meta.ID] = true
			continue
		}
		if err := r.Close(); err != nil {
			return 0, 0, dataError(s.dir, err, "snapshot %s cannot be read", meta.ID)
		}
		s.configuration = meta.Configuration
		return meta.Index, meta.Term, nil
	}
	if err != nil {
		return 0, 0, damaged(s.dir, err, "none of %d snapshots can be read", len(list))
	}
	return 0, 0, nil
}

// Bootstrap writes the first entry of the cell's log, which is its configuration
// and the same on every member, and then that the cell has begun here.
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
	err = s.guard.call(func() error {
		// As if an interrupted bootstrap had not begun: Raft insists.
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

// StartRaft starts Raft on the stores. What arrives through trans has to wait until it
// has returned.
func (s *Stores) StartRaft(conf *raft.Config, fsm raft.FSM, trans raft.Transport) (r *raft.Raft, err error) {
	err = s.guard.call(func() error {
		return sheltered(func() (err error) { // it panics over what it cannot restore
			r, err = raft.NewRaft(conf, fsm, s.logs, s.stable, s.snapshots, trans)
			return err
		})
	})
	switch {
	case err == nil:
	case s.guard.failure() != nil:
		return nil, err
	default: // the stores have done what Raft asked for
		return nil, damaged(s.dir, err, "Raft cannot go on from the snapshots and the log in it")
	}
	if has := r.LastIndex(); has < s.last { // it has talked to nobody yet
		return nil, errors.Join(damaged(filepath.Join(s.dir, snapshotsName), nil, "the snapshot of entry %d cannot be restored, and without it the data ends at entry %d", s.last, has), r.Shutdown().Error())
	}
	s.mark.follow(r.CommitIndex)
	return r, nil
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
