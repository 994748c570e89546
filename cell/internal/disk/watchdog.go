package disk

import (
	"fmt"
	"sync"
	"time"
)

// maxStoreWait is how long one operation on the log or the votes may take before the
// disk counts as stalled, unless Options.Stall says something else. A slow disk syncs in tens of milliseconds; the replicas elect
// another leader within two or three seconds.
const maxStoreWait = 3 * time.Second

// snapshotWaits multiplies maxStoreWait for snapshots, whose sync may have to write out
// much more, and which hold up no election.
const snapshotWaits = 10

// watchdog notices an operation that does not come back.
//
// A leader whose disk hangs in an fsync goes on sending heartbeats, because Raft does
// that from other goroutines, and so keeps every other replica from being elected,
// permanently (hashicorp/raft issues 503, 612, 666). Only silence helps: an exit alone
// may hang on the same disk, with the sockets still open.
type watchdog struct {
	limit   time.Duration
	stalled func(op fmt.Stringer, limit time.Duration) // on a goroutine of its own, while the operation still hangs
}

// maxLooks is how many times the watchdog looks at an operation before it declares the
// disk stalled. A process that was stopped, or starved of processor time, finds on
// waking that its timer has fired and the operation has ended: that is one look, and the
// next one finds that the disk works.
const maxLooks = 6

// watch must be called when an operation begins, and the function that it returns when
// the operation has ended. The operation may take patience times the limit.
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
