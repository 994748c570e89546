package chubbykv_test

import (
	"testing"
	"time"

	"github.com/kvtools/valkeyrie/testsuite"
)

// valkeyrie's own suite, all of it, and what it leaves in the cell.
func TestSuite(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		t := w.T
		kv := w.store("one")
		testsuite.RunTestCommon(t, kv)
		testsuite.RunTestAtomic(t, kv)
		testsuite.RunTestWatch(t, kv)
		testsuite.RunTestLock(t, kv)
		testsuite.RunTestLockTTL(t, kv, w.store("two"))
		testsuite.RunTestListLock(t, kv)
		testsuite.RunTestTTL(t, kv, w.store("three"))
		testsuite.RunCleanup(t, kv)
		w.wantNodes("data")
		if err := kv.Close(); err != nil {
			t.Error(err)
		}
		w.sleep(time.Second)
		w.wantNodes("leases")
	})
}
