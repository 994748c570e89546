package disk

import (
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
	fatal    func(error) // called once, on any goroutine; must not block
	silence  func()      // called before fatal when the disk has stalled
	watchdog watchdog

	active atomic.Int32 // operations under way

	mu     sync.Mutex // guards failed
	failed error      // the error for fatal
}

func newFailStop(stall time.Duration, silence func(), fatal func(error)) *failStop {
	f := &failStop{fatal: fatal, silence: silence}
	f.watchdog = watchdog{limit: stall, stalled: f.diskStalled}
	return f
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
	}
	f.mu.Unlock()
	if first {
		f.fatal(err)
	}
}

func (f *failStop) diskStalled(op fmt.Stringer, limit time.Duration) {
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
	ended := f.watchdog.watch(op, patience)
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
