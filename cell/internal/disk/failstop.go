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
