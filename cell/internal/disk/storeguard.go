package disk

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/hashicorp/raft"
)

// storeGuard stands between Raft and its stores and makes every error of theirs
// the end of the replica.
//
// Raft itself does not: a leader that cannot write its log steps down and
// stands again; a follower that cannot goes on with a last index that it knows
// to be wrong (Raft.appendEntries, after a truncation); a lost term is a panic
// (Raft.setCurrentTerm, Raft.processLogs). And after a failed fsync Linux marks
// the pages clean, so that a retry "succeeds" with nothing on the disk. So the
// first error is reported to fatal, and from then on no operation on the log or
// the votes is begun, and none returns: it ends the goroutine that called it
// (runtime.Goexit), which is the one that would have panicked or gone on with
// what it does not have. Raft's own goroutines are waited for by its Shutdown
// all the same. Other goroutines have to go through call.
type storeGuard struct {
	fatal   func(error) // called once, from any goroutine; must not block
	silence func()      // called before fatal when the disk has stalled
	dog     watchdog

	active atomic.Int32 // operations that have begun and not ended

	mu     sync.Mutex // guards failed
	failed error      // what fatal was told
}

// newStoreGuard returns a guard whose watchdog has that limit.
func newStoreGuard(stall time.Duration, silence func(), fatal func(error)) *storeGuard {
	g := &storeGuard{fatal: fatal, silence: silence}
	g.dog = watchdog{limit: stall, stalled: g.stalled}
	return g
}

// storeOp is one operation, for messages.
type storeOp struct {
	verb     string // "append"
	from, to uint64 // the log entries it is about, zero if it is about none
	path     string
}

// String writes "append log entries 7 to 9 in /data/raft.db".
func (o storeOp) String() string {
	switch {
	case o.from == 0:
		return o.verb + " in " + o.path
	case o.from == o.to:
		return fmt.Sprintf("%s log entry %d in %s", o.verb, o.from, o.path)
	}
	return fmt.Sprintf("%s log entries %d to %d in %s", o.verb, o.from, o.to, o.path)
}

// failure returns what fatal was told, nil if it was not.
func (g *storeGuard) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// fail makes err the end of the replica, unless it has one already.
func (g *storeGuard) fail(err error) {
	g.mu.Lock()
	first := g.failed == nil
	if first {
		g.failed = err
	}
	g.mu.Unlock()
	if first {
		g.fatal(err)
	}
}

// stalled is the watchdog's alarm.
func (g *storeGuard) stalled(op fmt.Stringer, limit time.Duration) {
	g.silence()
	g.fail(&api.Error{Code: api.Unavailable, Op: op.String(),
		Message: fmt.Sprintf("the disk stalled: nothing came back within %v. This replica has fallen silent so that the others can go on; see to the disk, then start it again", limit)})
}

// try does one operation and reports its error. missing is an error that is
// none. It returns the error.
func (g *storeGuard) try(op storeOp, patience int, missing error, do func() error) error {
	if err := g.failure(); err != nil {
		return err
	}
	g.active.Add(1)
	defer g.active.Add(-1)
	ended := g.dog.watch(op, patience)
	err := sheltered(do)
	ended()
	if err != nil && (missing == nil || !errors.Is(err, missing)) {
		err = storeError(op, err)
		g.fail(err)
		return err
	}
	if late := g.failure(); late != nil {
		return late // it came back after all, or another one failed; the replica has ended
	}
	return err
}

// must is try for the log and the votes: it returns nil or missing, or never.
func (g *storeGuard) must(op storeOp, missing error, do func() error) error {
	err := g.try(op, 1, missing, do)
	if g.failure() != nil {
		runtime.Goexit()
	}
	return err
}

// call runs f, which may use guarded stores, and returns its error, or the
// guard's if a store failed f.
func (g *storeGuard) call(f func() error) error {
	var err error
	returned := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = f()
		returned = true
	}()
	<-done
	if !returned {
		return g.failure()
	}
	return err
}

// sheltered turns a panic of do, and a fault on mapped memory (the file became
// shorter, or its page cannot be read), into an error: bbolt knows corruption
// no other way.
func sheltered(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = api.Errorf(api.Corrupt, "the store gave up: %v", p)
		}
	}()
	return do()
}

// storeError says what failed and what to do about it.
func storeError(op storeOp, err error) *api.Error {
	e := &api.Error{Code: api.Unavailable, Op: op.String(), Err: err}
	switch {
	case errors.Is(err, api.Corrupt):
		e.Code = api.Corrupt
		e.Message = "the data of this replica is damaged: " + identity.LossAdvice
	case errors.Is(err, errStartAgain):
		e.Message = "nothing is damaged: start this replica again, it catches up by itself"
	case errors.Is(err, identity.ErrRefused):
		e.Message = "this replica does not do that"
	case errors.Is(err, api.TooLarge):
		e.Code = api.TooLarge
		e.Message = "nothing was written: this is a bug of the master that made the entry, please report it; start this replica again"
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		e.Message = "the disk is full: free some space, then start this replica again"
	case errors.Is(err, syscall.EIO):
		e.Message = "the disk reports an I/O error: do not trust it any more. Copy what can be read of the data; " + identity.LossAdvice
	case errors.Is(err, syscall.EROFS):
		e.Message = "the file system has become read-only, as Linux does on errors: see the kernel's log, repair it, then start this replica again"
	case errors.Is(err, fs.ErrPermission):
		e.Message = "permission denied: give the directory to the user that runs this replica, then start it again"
	default:
		e.Message = "the store failed: see the cause, then start this replica again"
	}
	return e
}

// guardedLogs is the Raft log: guarded, and with a checksum in each entry.
//
// The commit mark and the checksum (CRC32C over index, term, type, data,
// extensions and mark) are appended to an entry's Extensions when it is written and
// taken off when it is read, so that neither Raft nor a peer ever sees them. Neither store checks what it reads
// itself; without this, one flipped bit would be applied, or sent to the others.
type guardedLogs struct {
	inner raft.LogStore
	guard *storeGuard
	path  string
	limit int // bytes of one entry; 0 is maxLogEntry
	mark  *commitMark

	rotten func(index uint64, err error) // told of an entry that a snapshot makes up for; may be nil
	told   atomic.Uint64                 // the entry that rotten was told of last
}

// sealSize is what is appended to an entry's Extensions: the mark, the checksum.
const sealSize = 8 + crc32.Size

var (
	_ raft.LogStore          = (*guardedLogs)(nil)
	_ raft.MonotonicLogStore = (*guardedLogs)(nil)
)

// IsMonotonic makes Raft empty the log when it has installed a snapshot of the
// leader's, whatever the inner store can do. raft-wal takes no gaps. In bbolt's log
// Raft would leave the newest entries from before the gap, which may be of a deposed
// master and never have been committed; this replica, once elected, would send them
// to one that is further behind, as if they had been.
func (l *guardedLogs) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore.
func (l *guardedLogs) FirstIndex() (index uint64, err error) {
	err = l.guard.must(storeOp{verb: "find the first entry", path: l.path}, nil, func() error {
		index, err = l.inner.FirstIndex()
		return err
	})
	return index, err
}

// LastIndex implements raft.LogStore.
func (l *guardedLogs) LastIndex() (index uint64, err error) {
	err = l.guard.must(storeOp{verb: "find the last entry", path: l.path}, nil, func() error {
		index, err = l.inner.LastIndex()
		return err
	})
	return index, err
}

// GetLog implements raft.LogStore. It fails with raft.ErrLogNotFound, also for an entry
// that has rotted and that the newest snapshot covers: nobody needs it, and a master sends
// the snapshot instead. Raft reads the oldest entry of a master every ten seconds, too, to
// measure its age.
func (l *guardedLogs) GetLog(index uint64, log *raft.Log) error {
	op := storeOp{verb: "read", from: index, to: index, path: l.path}
	return l.guard.must(op, raft.ErrLogNotFound, func() error {
		err := readLog(l.inner, index, log)
		if err != nil && !denied(err) && index <= l.mark.snapshot() {
			l.tell(index, err)
			return raft.ErrLogNotFound
		}
		return err
	})
}

// tell tells of a rotten entry, once however often it is read.
func (l *guardedLogs) tell(index uint64, err error) {
	if !errors.Is(err, raft.ErrLogNotFound) && l.rotten != nil && l.told.Swap(index) != index {
		l.rotten(index, err)
	}
}

// StoreLog implements raft.LogStore.
func (l *guardedLogs) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore. It does not change the caller's entries,
// which raft.LogCache keeps. Of a batch with an entry that could not be read again
// it writes nothing: that ends the replica, as every error does, but it can start
// again, and the entry is not committed by its vote. The proposer sees to it that
// this never happens (limits).
func (l *guardedLogs) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	sealed, mark := make([]*raft.Log, len(logs)), l.mark.index()
	for i, log := range logs {
		entry := *log
		entry.Extensions = append(make([]byte, 0, len(log.Extensions)+sealSize), log.Extensions...)
		entry.Extensions = binary.BigEndian.AppendUint64(entry.Extensions, mark)
		entry.Extensions = binary.BigEndian.AppendUint32(entry.Extensions, logSum(&entry))
		sealed[i] = &entry
	}
	op := storeOp{verb: "append", from: logs[0].Index, to: logs[len(logs)-1].Index, path: l.path}
	return l.guard.must(op, nil, func() error {
		if err := l.tooLarge(sealed); err != nil {
			return err
		}
		last, err := l.inner.LastIndex()
		if err == nil && last == 0 {
			err = l.mark.follows(sealed[0].Index)
		}
		if err != nil {
			return err
		}
		return l.inner.StoreLogs(sealed)
	})
}

// tooLarge refuses entries that could not be read again.
func (l *guardedLogs) tooLarge(logs []*raft.Log) error {
	limit := cmp.Or(l.limit, MaxLogEntry)
	for _, log := range logs {
		if n := len(log.Data) + len(log.Extensions); n > limit {
			return api.Errorf(api.TooLarge, "log entry %d has %d bytes, and at most %d can be read again", log.Index, n, limit)
		}
	}
	return nil
}

// DeleteRange implements raft.LogStore. Raft deletes the oldest entries when they
// are in a snapshot, all entries when it has got a snapshot of the leader, and the
// newest ones when the leader has others. Entries that are known to be committed
// are deleted in the first way only; the wish to do so in another one ends the
// replica. The first is done on a goroutine of its own, and the second may come before
// it: then there is nothing left to delete. Of the oldest, those stay that follow the
// snapshot before the newest: should this one rot, they take its place.
func (l *guardedLogs) DeleteRange(first, last uint64) error {
	op := storeOp{verb: "delete", from: first, to: last, path: l.path}
	return l.guard.must(op, nil, func() error {
		begin, err := l.inner.FirstIndex()
		if err != nil || begin == 0 || last < begin {
			return err // nothing of it is there
		}
		if err := l.mark.deletable(begin, first, last); err != nil {
			return err
		}
		newest, err := l.inner.LastIndex()
		if err != nil {
			return err
		}
		if first <= begin && last < newest {
			last = min(last, l.mark.surplus())
		}
		if last < begin {
			return nil
		}
		var end raft.Log
		if err := readLog(l.inner, last, &end); err != nil {
			end.Term = 0 // it goes, whatever it was: of no term that Raft knows
		}
		if err := l.inner.DeleteRange(first, last); err != nil {
			return err
		}
		return l.mark.outlived(begin, first, last, end.Term)
	})
}

// readLog reads an entry and checks that it is the one that was written there.
func readLog(store raft.LogStore, index uint64, log *raft.Log) error {
	_, err := readMarked(store, index, log)
	return err
}

// readMarked is readLog, and returns the commit mark at the time of writing.
func readMarked(store raft.LogStore, index uint64, log *raft.Log) (mark uint64, err error) {
	if err := store.GetLog(index, log); err != nil {
		return 0, err
	}
	own := len(log.Extensions) - sealSize
	if own < 0 {
		return 0, api.Errorf(api.Corrupt, "log entry %d has no checksum", index)
	}
	mark = binary.BigEndian.Uint64(log.Extensions[own:])
	sum := binary.BigEndian.Uint32(log.Extensions[own+8:])
	log.Extensions = log.Extensions[:own+8]
	if log.Index != index {
		return 0, api.Errorf(api.Corrupt, "entry %d is stored where log entry %d belongs", log.Index, index)
	}
	if logSum(log) != sum {
		return 0, api.Errorf(api.Corrupt, "log entry %d fails its checksum", index)
	}
	log.Extensions = log.Extensions[:own:own]
	if own == 0 {
		log.Extensions = nil // as Raft wrote it
	}
	return mark, nil
}

// logSum is an entry's checksum, without one.
func logSum(log *raft.Log) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	head := make([]byte, 0, 25)
	head = binary.BigEndian.AppendUint64(head, log.Index)
	head = binary.BigEndian.AppendUint64(head, log.Term)
	head = append(head, byte(log.Type))
	head = binary.BigEndian.AppendUint64(head, uint64(len(log.Data)))
	return crc32.Update(crc32.Update(crc32.Checksum(head, table), table, log.Data), table, log.Extensions)
}

// guardedVotes is Raft's stable store, guarded. Reading what was never written
// is no error.
type guardedVotes struct {
	inner raft.StableStore
	guard *storeGuard
	path  string
}

var _ raft.StableStore = (*guardedVotes)(nil)

// Set implements raft.StableStore.
func (v *guardedVotes) Set(key, value []byte) error {
	return v.guard.must(v.op("write", key), nil, func() error { return v.inner.Set(key, value) })
}

// Get implements raft.StableStore.
func (v *guardedVotes) Get(key []byte) (value []byte, err error) {
	err = v.guard.must(v.op("read", key), nil, func() error {
		value, err = v.inner.Get(key)
		return err
	})
	return value, err
}

// SetUint64 implements raft.StableStore.
func (v *guardedVotes) SetUint64(key []byte, value uint64) error {
	return v.guard.must(v.op("write", key), nil, func() error { return v.inner.SetUint64(key, value) })
}

// GetUint64 implements raft.StableStore.
func (v *guardedVotes) GetUint64(key []byte) (value uint64, err error) {
	err = v.guard.must(v.op("read", key), nil, func() error {
		value, err = v.inner.GetUint64(key)
		return err
	})
	return value, err
}

func (v *guardedVotes) op(verb string, key []byte) storeOp {
	return storeOp{verb: verb + " " + string(key), path: v.path}
}

// guardedSnapshots is the snapshot store, guarded. Its errors are fatal too,
// but they are returned: Raft gives up the one snapshot and does no harm until
// the replica has stopped.
type guardedSnapshots struct {
	inner  raft.SnapshotStore
	guard  *storeGuard
	path   string
	mark   *commitMark
	rotten map[string]bool // found to be damaged at the start, by ID
}

var _ raft.SnapshotStore = (*guardedSnapshots)(nil)

// Create implements raft.SnapshotStore.
func (s *guardedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport,
) (sink raft.SnapshotSink, err error) {
	err = s.try("create a snapshot", func() error {
		sink, err = s.inner.Create(version, index, term, configuration, configurationIndex, trans)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &guardedSink{SnapshotSink: sink, store: s, covers: covered{index: index, term: term}}, nil
}

// List implements raft.SnapshotStore. It leaves out those that were found to be damaged:
// Raft would try the newest first, to restore it or to send it, and that it cannot be
// read would end the replica, with every start anew.
func (s *guardedSnapshots) List() (list []*raft.SnapshotMeta, err error) {
	err = s.try("list the snapshots", func() error {
		list, err = s.inner.List()
		return err
	})
	return slices.DeleteFunc(list, func(meta *raft.SnapshotMeta) bool { return s.rotten[meta.ID] }), err
}

// Open implements raft.SnapshotStore.
func (s *guardedSnapshots) Open(id string) (meta *raft.SnapshotMeta, r io.ReadCloser, err error) {
	err = s.try("open snapshot "+id, func() error {
		meta, r, err = s.inner.Open(id)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return meta, &guardedReader{ReadCloser: r, store: s}, nil
}

func (s *guardedSnapshots) try(verb string, do func() error) error {
	return s.guard.try(storeOp{verb: verb, path: s.path}, snapshotPatience, nil, do)
}

// guardedSink guards the writing of one snapshot.
type guardedSink struct {
	raft.SnapshotSink
	store  *guardedSnapshots
	covers covered
}

// Write implements io.Writer.
func (s *guardedSink) Write(p []byte) (n int, err error) {
	err = s.store.try("write a snapshot", func() error {
		n, err = s.SnapshotSink.Write(p)
		return err
	})
	return n, err
}

// Close implements raft.SnapshotSink: the snapshot is complete.
func (s *guardedSink) Close() error {
	if err := s.store.try("finish a snapshot", s.SnapshotSink.Close); err != nil {
		return err
	}
	s.store.mark.snapshotted(s.covers.index, s.covers.term)
	return nil
}

// Cancel implements raft.SnapshotSink: the snapshot is thrown away.
func (s *guardedSink) Cancel() error {
	return s.store.try("remove an unfinished snapshot", s.SnapshotSink.Cancel)
}

// guardedReader guards the reading of one snapshot.
type guardedReader struct {
	io.ReadCloser
	store *guardedSnapshots
}

// Read implements io.Reader.
func (r *guardedReader) Read(p []byte) (n int, err error) {
	op := storeOp{verb: "read a snapshot", path: r.store.path}
	err = r.store.guard.try(op, snapshotPatience, io.EOF, func() error {
		n, err = r.ReadCloser.Read(p)
		return err
	})
	return n, err
}

// MaxLogEntry is the largest entry that a replica writes into its log: the last
// line of defence, for what is larger could not be read again. raft-wal writes
// entries of any size, and takes one above 64 MiB for damage when it reads it. An
// entry of this version is far smaller (api.MaxCommand); no entry is refused that
// an earlier version wrote and could read.
const MaxLogEntry = 16 << 20
