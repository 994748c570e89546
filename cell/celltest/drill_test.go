package celltest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/celltest"
)

// TestMastersChange: after each drill another replica is the master, and the
// client's next call reaches it.
func TestMastersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 3)
		file := dial(t, c, "client").open(t, "/ls/local/file", 0)
		for range 3 {
			before := c.Master()
			if killed := c.FailOver(); killed != before || c.Replica(killed) != nil || c.Master() == killed {
				t.Errorf("%s was the master, %s was killed, and %s is the master now", before, killed, c.Master())
			}
			put(t, file, "after a fail-over")
			c.Restart(before)
			before = c.Master()
			if c.Transfer(); c.Master() == before {
				t.Errorf("%s handed over and is still the master", before)
			}
			contents(t, file, "after a fail-over")
		}
	})
}

// A hand-over succeeds also while the cell comes to rest after a cut, when the request to the other
// replica may be lost with a connection.
func TestTransferAfterIsolation(t *testing.T) {
	for wait := time.Duration(0); wait < 20*time.Millisecond; wait += time.Millisecond {
		t.Run(wait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := celltest.Start(t, 3)
				master := c.Master()
				c.Isolate(master)
				time.Sleep(wait)
				c.Rejoin(master)
				c.Transfer()
			})
		})
	}
}
