package chubbyvault

import (
	"testing"
	"time"
)

// An operator takes the lock of a writer's chunks away at once, and a sweep removes them, before the entry, which is new or
// not, has them: the value is written again.
func TestBrokenChunkLock(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		two, swept := w.backend("two"), 0
		one, arm := w.meanwhile("one", "/Open", func() {
			locks, err := w.operator.Cell().Locks(w.Context(), two.chunks())
			if err != nil || len(locks) != 1 {
				w.Errorf("locks: %+v, %v", locks, err)
				return
			}
			if err := w.operator.BreakLock(w.Context(), locks[0].Path, "a test", true); err != nil {
				w.Error(err)
			}
			n, err := two.Sweep(w.Context())
			if err != nil {
				w.Error(err)
			}
			swept += n
		})
		w.put(one, "entry", large('a'))
		for round, key := range []string{"entry", "another"} {
			arm(5) // their directory, the file that names the key, and three chunks
			w.put(one, key, large('b'))
			w.want(two, key, large('b'))
			if swept != round+1 {
				w.Errorf("%d values were swept by now; want %d", swept, round+1)
			}
		}
		w.sleep(10 * time.Second)
		if _, err := two.Sweep(w.Context()); err != nil {
			w.Error(err)
		}
		if n := w.chunked(); n != 2 {
			w.Errorf("%d values in chunks; want two", n)
		}
	})
}
