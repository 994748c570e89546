package e2e

import (
	"syscall"
	"testing"
)

// A cell goes from the last release to this version, replica by replica, back again and up
// again, and nobody notices.
func TestRollingUpgrade(t *testing.T) {
	released, next := lastRelease(t), thisVersion()
	r := startRollingCell(t, released)
	r.must("put", "/ls/local/file", "before")
	for _, id := range rollingIDs {
		r.replace(id, syscall.SIGKILL, next)
		r.checkHashes()
	}
	t.Logf("%+v", r.upgradeStatus(released))
	if got := r.ctlOf(released, "cat", "/ls/local/file"); got.out != "before" {
		t.Errorf("%+v", got)
	}
}
