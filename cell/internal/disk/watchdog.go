package disk

import (
	"fmt"
	"sync"
	"time"
)

// storeStall is how long one operation on a log or on the votes may take before
// the disk counts as stalled. A slow disk syncs in tens of milliseconds; the
// replicas elect another leader within two or three seconds.
const storeStall = 3 * time.Second

// snapshotPatience multiplies storeStall for snapshots, whose sync may have to
// write out much more, and which hold up no election.
const snapshotPatience = 10

// watchdog notices an operation that does not come back.
//
// A leader whose disk hangs in an fsync goes on sending heartbeats, for Raft
// does that from other goroutines, and so keeps every other replica from being
// elected, for ever (hashicorp/raft issues 503, 612, 666). Nothing but silence
// helps: an exit alone may hang on the same disk, with the sockets still open.
type watchdog struct {
	limit   time.Duration
	stalled func(op fmt.Stringer, limit time.Duration) // on a goroutine of its own, while the operation still hangs
}

// watchLooks is how many times the watchdog looks at an operation before it gives the
// disk up. A process that was stopped, or starved of processor time, finds its timer
// and the operation over at the same moment when it goes on: that is one look, and the
// next one finds that the disk is well.
const watchLooks = 6

// watch is to be called when an operation begins, and what it returns when it
// has ended. The limit is multiplied by patience.
func (w watchdog) watch(op fmt.Stringer, patience int) (ended func()) {
	limit := w.limit * time.Duration(patience)
	var mu sync.Mutex // guards left, and timer until it is set
	var timer *time.Timer
	left := watchLooks
	look := func() (stalled bool) {
		mu.Lock()
		defer mu.Unlock()
		if left--; left > 0 {
			timer.Reset(limit / watchLooks)
		}
		return left == 0
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(limit/watchLooks, func() {
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
