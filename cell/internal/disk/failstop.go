package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
)

// failStop stands between Raft and its stores: the first error of a store ends the replica.
//
// Raft itself goes on. A leader that cannot write its log steps down and stands for election again. A follower
// goes on with a last index that it knows to be wrong (Raft.appendEntries, after a truncation). If a term
// cannot be written, Raft panics (Raft.setCurrentTerm, Raft.processLogs). And after a failed fsync, Linux marks
// the pages clean, so that a retry "succeeds" with nothing on the disk.
//
// So fatal gets the first error. From then on no operation on the log or the votes begins or returns: it ends
// its goroutine (runtime.Goexit), which would otherwise panic, or go on without its data. Raft's Shutdown still
// waits for Raft's goroutines. Other goroutines must use callOnGoroutine.
type failStop struct {
	fatal   func(error)   // called once, on any goroutine; must not block
	silence func()        // called before fatal when the disk has stalled
	stall   time.Duration // how long an operation on the log or the votes may take; see watch

	active atomic.Int32 // operations under way

	mu     sync.Mutex    // guards failed
	failed error         // the error for fatal
	ended  chan struct{} // closed when failed is set
}

func newFailStop(stall time.Duration, silence func(), fatal func(error)) *failStop {
	return &failStop{fatal: fatal, silence: silence, stall: stall, ended: make(chan struct{})}
}

type storeOp struct {
	verb     string // "append"
	from, to uint64 // its log entries, zero without any
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

func (f *failStop) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

func (f *failStop) fail(err error) {
	f.mu.Lock()
	first := f.failed == nil
	if first {
		f.failed = err
		close(f.ended)
	}
	f.mu.Unlock()
	if first {
		f.fatal(err)
	}
}

func (f *failStop) diskStalled(op storeOp, limit time.Duration) {
	f.silence()
	f.fail(&api.Error{Code: api.Unavailable, Op: op.String(),
		Message: fmt.Sprintf("the disk stalled: nothing came back within %v. This replica has fallen silent so that the others can go on; see to the disk, then start it again", limit)})
}

// attempt runs an operation and returns its error, which ends the replica unless it is notFound.
func (f *failStop) attempt(op storeOp, patience int, notFound error, do func() error) error {
	if err := f.failure(); err != nil {
		return err
	}
	f.active.Add(1)
	defer f.active.Add(-1)
	ended := f.watch(op, patience)
	err := catchPanic(do)
	ended()
	if err != nil && (notFound == nil || !errors.Is(err, notFound)) {
		err = storeError(op, err)
		f.fail(err)
		return err
	}
	if late := f.failure(); late != nil {
		return late // it returned late, or another one failed; the replica has ended
	}
	return err
}

// attemptOrExit is attempt for the log and the votes. It returns nil or notFound, or does not return.
func (f *failStop) attemptOrExit(op storeOp, notFound error, do func() error) error {
	err := f.attempt(op, 1, notFound, do)
	if f.failure() != nil {
		runtime.Goexit()
	}
	return err
}

// callOnGoroutine calls do, which may use the fail-stop stores, on a goroutine and waits for it. It returns the
// error of do, or the store's that ended the goroutine.
func (f *failStop) callOnGoroutine(do func() error) error {
	var err error
	returned := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = do()
		returned = true
	}()
	<-done
	if !returned {
		return f.failure()
	}
	return err
}

// catchPanic turns a panic of do, and a fault on mapped memory (the file was cut, or its page is unreadable),
// into an error: bbolt reports corruption only so.
func catchPanic(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = api.Errorf(api.Corrupt, "the store gave up: %v", p)
		}
	}()
	return do()
}

func storeError(op storeOp, err error) *api.Error {
	e := &api.Error{Code: api.Unavailable, Op: op.String(), Err: err}
	switch {
	case errors.Is(err, api.Corrupt):
		e.Code = api.Corrupt
		e.Message = "the data of this replica is damaged: " + identity.LossAdvice
	case errors.Is(err, errRestart):
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

// MaxLogEntry is the largest entry, in bytes, that a replica writes into its log: a larger one could not be
// read again. raft-wal writes entries of any size, and reads those above 64 MiB as damage. Entries of this
// version are far smaller (api.MaxCommand), and every entry passes that an earlier version wrote and could read.
const MaxLogEntry = 16 << 20

// failStopLogs is the Raft log, with a fail-stop and a checksum in each entry.
//
// It adds the commit mark and the checksum (CRC32C over index, term, type, data, extensions and mark) to the
// Extensions of each entry that it writes, and removes them when it reads the entry. Neither Raft nor another
// replica sees them. Neither log store checks what it reads: one flipped bit would be applied, or sent to other replicas.
type failStopLogs struct {
	inner    raft.LogStore
	failStop *failStop
	path     string
	mark     *commitMark
	clock    session.Clock  // for appended
	appended func(Appended) // called after each append; may be nil

	onDamaged    func(index uint64, err error) // called for a damaged entry that a snapshot covers
	lastReported atomic.Uint64                 // the last entry for which onDamaged was called
}

var (
	_ raft.LogStore          = (*failStopLogs)(nil)
	_ raft.MonotonicLogStore = (*failStopLogs)(nil)
)

// IsMonotonic makes Raft empty the log after it has installed a leader's snapshot. raft-wal accepts no gaps. In
// bbolt's log, Raft would leave the newest entries from before the gap, perhaps a deposed master's and
// uncommitted. Once elected, this replica would send them to a replica further behind, as if committed.
func (l *failStopLogs) IsMonotonic() bool { return true }

func (l *failStopLogs) FirstIndex() (index uint64, err error) {
	err = l.failStop.attemptOrExit(storeOp{verb: "find the first entry", path: l.path}, nil, func() error {
		index, err = l.inner.FirstIndex()
		return err
	})
	return index, err
}

func (l *failStopLogs) LastIndex() (index uint64, err error) {
	err = l.failStop.attemptOrExit(storeOp{verb: "find the last entry", path: l.path}, nil, func() error {
		index, err = l.inner.LastIndex()
		return err
	})
	return index, err
}

// GetLog implements raft.LogStore. It also returns raft.ErrLogNotFound for a damaged entry that the newest
// snapshot covers: a master then sends the snapshot. Raft also reads a master's oldest entry every ten seconds,
// for its age.
func (l *failStopLogs) GetLog(index uint64, log *raft.Log) error {
	op := storeOp{verb: "read", from: index, to: index, path: l.path}
	return l.failStop.attemptOrExit(op, raft.ErrLogNotFound, func() error {
		err := readLog(l.inner, index, log)
		//mutant: if err != nil && !isDenied(err) && index == 0 {
		if err != nil && !isDenied(err) && index <= l.mark.snapshotIndex() {
			l.reportDamaged(index, err)
			return raft.ErrLogNotFound
		}
		return err
	})
}

func (l *failStopLogs) reportDamaged(index uint64, err error) {
	if !errors.Is(err, raft.ErrLogNotFound) && l.lastReported.Swap(index) != index {
		l.onDamaged(index, err)
	}
}

func (l *failStopLogs) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore. It leaves the caller's entries unchanged, which raft.LogCache keeps. If
// an entry could not be read again, it writes nothing of the batch. That ends the replica, but it can start
// again, and its vote does not commit the entry. The master's limits prevent such an entry.
func (l *failStopLogs) StoreLogs(logs []*raft.Log) error {
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
	var began session.Instant
	if l.appended != nil {
		began = l.clock()
	}
	err := l.failStop.attemptOrExit(op, nil, func() error {
		if err := checkSize(logs); err != nil {
			return err
		}
		last, err := l.inner.LastIndex()
		if err == nil && last == 0 {
			err = l.mark.checkFirst(sealed[0].Index)
		}
		if err != nil {
			return err
		}
		return l.inner.StoreLogs(sealed)
	})
	if l.appended != nil {
		l.appended(Appended{First: op.from, Last: op.to, From: began, To: l.clock()})
	}
	return err
}

// checkSize returns an error if one of the entries could not be read again once it is sealed.
func checkSize(logs []*raft.Log) error {
	for _, log := range logs {
		if n := len(log.Data) + len(log.Extensions) + sealSize; n > MaxLogEntry {
			return api.Errorf(api.TooLarge, "log entry %d has %d bytes, and at most %d can be read again", log.Index, n, MaxLogEntry)
		}
	}
	return nil
}

// DeleteRange implements raft.LogStore. Raft deletes the oldest entries when a snapshot has them, all entries
// when it has received a leader's snapshot, and the newest when the leader has others in their place. Committed
// entries may only be deleted in the first way; other requests end the replica.
//
// Raft deletes the oldest entries on a goroutine of its own, perhaps after it has deleted all. Of the oldest,
// those after the last snapshot but one stay in the log: they replace the newest snapshot if that is damaged.
func (l *failStopLogs) DeleteRange(first, last uint64) error {
	op := storeOp{verb: "delete", from: first, to: last, path: l.path}
	return l.failStop.attemptOrExit(op, nil, func() error {
		begin, err := l.inner.FirstIndex()
		//mutant: if err != nil {
		if err != nil || begin == 0 || last < begin {
			return err // there is no such entry
		}
		if err := l.mark.checkDelete(begin, first, last); err != nil {
			return err
		}
		newest, err := l.inner.LastIndex()
		if err != nil {
			return err
		}
		if first <= begin && last < newest {
			//mutant: last = min(last, l.mark.snapshotIndex())
			last = min(last, l.mark.lastSurplus())
		}
		if last < begin {
			return nil
		}
		var end raft.Log
		if err := readLog(l.inner, last, &end); err != nil {
			end.Term = 0 // the entry goes, even unreadable; Raft knows no term 0
		}
		if err := l.inner.DeleteRange(first, last); err != nil {
			return err
		}
		return l.mark.checkEmptied(begin, first, last, end.Term)
	})
}

// maxStoreWait is how long one operation on the log or the votes may take before the disk counts as stalled,
// unless Options.Stall is set. A slow disk syncs in tens of milliseconds; the replicas elect another leader
// within two or three seconds.
const maxStoreWait = 3 * time.Second

// snapshotWaits multiplies that time (or Options.Stall) for snapshots, whose sync may write much more, and
// which delay no election.
const snapshotWaits = 10

// maxLooks is how many times the watchdog looks at an operation before it declares the disk stalled. A process
// that was stopped, or starved of processor time, may wake when its timer has fired and the operation has
// ended. That is one look; the next one finds that the disk works.
const maxLooks = 6

// watch detects an operation that hangs. It must be called when the operation begins, and ended when it has ended.
// The operation may take patience times the limit; then diskStalled runs on its own goroutine, while it still hangs.
//
// A leader with a hanging fsync still sends heartbeats, from other goroutines, and so permanently prevents the
// election of another (hashicorp/raft issues 503, 612, 666). Only silence helps: an exit alone may hang on the
// same disk, with the sockets still open.
func (f *failStop) watch(op storeOp, patience int) (ended func()) {
	limit := f.stall * time.Duration(patience)
	var mu sync.Mutex // guards left, and timer until it is set
	var timer *time.Timer
	left := maxLooks
	look := func() (stalled bool) {
		mu.Lock()
		defer mu.Unlock()
		if left--; left > 0 {
			timer.Reset(limit / maxLooks)
		}
		return left == 0
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(limit/maxLooks, func() {
		if look() {
			f.diskStalled(op, limit)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		left = 0
		timer.Stop()
	}
}
