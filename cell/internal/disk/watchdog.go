package disk

import (
	"fmt"
	"sync"
	"time"
)

// maxStoreWait is how long one operation on the log or the votes may take before the disk counts as stalled,
// unless Options.Stall is set. A slow disk syncs in tens of milliseconds; the replicas elect another leader
// within two or three seconds.
const maxStoreWait = 3 * time.Second

// snapshotWaits multiplies that time (or Options.Stall) for snapshots, whose sync may write much more, and
// which delay no election.
const snapshotWaits = 10

// watchdog detects an operation that hangs.
//
// A leader with a hanging fsync still sends heartbeats, from other goroutines, and so permanently prevents the
// election of another (hashicorp/raft issues 503, 612, 666). Only silence helps: an exit alone may hang on the
// same disk, with the sockets still open.
type watchdog struct {
	limit   time.Duration
	stalled func(op fmt.Stringer, limit time.Duration) // called on its own goroutine, while the operation still hangs
}

// maxLooks is how many times the watchdog looks at an operation before it declares the disk stalled. A process
// that was stopped, or starved of processor time, may wake when its timer has fired and the operation has
// ended. That is one look; the next one finds that the disk works.
const maxLooks = 6

// watch must be called when an operation begins, and ended when it has ended. The operation may take patience
// times the limit.
func (w watchdog) watch(op fmt.Stringer, patience int) (ended func()) {
	limit := w.limit * time.Duration(patience)
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
			w.stalled(op, limit)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		left = 0
		timer.Stop()
	}
}
