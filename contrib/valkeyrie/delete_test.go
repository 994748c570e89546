package chubbykv_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	chubbykv "github.com/chubbylock/chubby/contrib/valkeyrie"
)

// A Delete whose answer was lost, with its session, leaves a key that another has created since.
func TestDeleteLeavesWhatWasCreatedSince(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		other := w.store("other")
		w.put(other, "key", "old", nil)
		var armed, lost atomic.Bool
		dial := w.cell.Lossy("one", func(method string) bool { // nothing is answered after the deletion, until its session is over
			if strings.HasSuffix(method, "/Txn") && armed.Load() {
				lost.Store(true)
			}
			return lost.Load()
		})
		one := w.store("one", func(cfg *chubbykv.Config) { cfg.Client.Dialer = dial })
		w.want(one, "key", "old")
		armed.Store(true)
		deleted := make(chan error, 1)
		go func() { deleted <- one.Delete(w.Context(), "key") }()
		w.sleep(5 * time.Second)
		if done, _, err := other.AtomicPut(w.Context(), "key", []byte("new"), nil, nil); !done || err != nil {
			w.Fatalf("the key is not deleted: %v", err)
		}
		w.sleep(2 * time.Minute) // the session is given up
		armed.Store(false)
		lost.Store(false)
		if err := <-deleted; err != nil {
			w.Errorf("Delete: %v", err)
		}
		w.want(other, "key", "new")
	})
}
