package chubbykv_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	chubbykv "github.com/chubbylock/chubby/contrib/valkeyrie"
	"github.com/kvtools/valkeyrie/store"
)

// A watch tells of each change, of a deletion by a pair without a value, and goes on through a fail-over and the
// loss of its session; of a key whose lease is gone it tells as of one that was deleted.
func TestWatch(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		t := w.T
		s, other := w.store("one"), w.store("two", func(cfg *chubbykv.Config) { cfg.Client.Lease = 3 * time.Second })
		if _, err := s.Watch(t.Context(), "dir/k", nil); err != store.ErrKeyNotFound { //nolint:errorlint // so do callers
			t.Error(err)
		}
		w.put(other, "dir/k", "0", nil)
		ctx, stop := context.WithCancel(t.Context())
		events, err := s.Watch(ctx, "/dir/k", nil)
		if err != nil {
			t.Fatal(err)
		}
		tell := func(want string) {
			t.Helper()
			pair := next(w, events)
			if pair.Key != "dir/k" || string(pair.Value) != want || (pair.Value == nil) != (want == "") || (pair.LastIndex == 0) != (want == "") {
				t.Errorf("told %+v, want %q", pair, want)
			}
			if now := w.get(s, "dir/k"); now != nil && now.LastIndex != pair.LastIndex {
				t.Errorf("told index %d, and it is %d", pair.LastIndex, now.LastIndex)
			}
		}
		tell("0")
		w.put(other, "dir/k", "1", nil)
		tell("1")
		w.put(other, "dir/k", "1", nil)
		tell("1")
		w.put(other, "dir/other", "x", nil)
		w.put(other, "dir/k/below", "x", nil)
		quiet(w, events)
		if err := other.Delete(t.Context(), "dir/k"); err != nil {
			t.Fatal(err)
		}
		tell("")
		if err := other.DeleteTree(t.Context(), "dir"); err != nil { // and the directory
			t.Fatal(err)
		}
		w.put(other, "dir/k", "2", kept(time.Second))
		tell("2")
		w.cell.Restart(w.cell.FailOver())
		w.put(other, "dir/k", "3", kept(time.Second))
		tell("3")
		w.endSession()
		w.put(other, "dir/k", "4", kept(time.Second))
		tell("4")
		for i := range 20 { // nobody receives: the first is told, and the last
			w.put(other, "dir/k", strconv.Itoa(i), kept(time.Second))
		}
		for last := ""; last != "19"; {
			last = string(next(w, events).Value)
		}
		w.cell.Pause("two")
		tell("")
		stop()
		if pair, ok := <-events; ok {
			t.Errorf("after its end: %v", pair)
		}
	})
}

// endSession has an operator end the session of host one.
func (w *world) endSession() {
	w.Helper()
	list, err := w.operator.Cell().Sessions(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, one := range list {
		if one.Holder.Principal == "one" {
			if err := w.operator.EndSession(w.Context(), one.Holder.Session, "a test"); err != nil {
				w.Fatal(err)
			}
		}
	}
}

// A watch of a tree tells of its keys at once and after each change, and goes on as one of a key does.
func TestWatchTree(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		t := w.T
		s, other := w.store("one"), w.store("two", func(cfg *chubbykv.Config) { cfg.Client.Lease = 3 * time.Second })
		lists, err := s.WatchTree(t.Context(), "dir", nil)
		if err != nil {
			t.Fatal(err)
		}
		tell := func(want ...string) {
			t.Helper()
			for limit := time.Now().Add(20 * time.Second); ; {
				is := next(w, lists)
				if slices.Equal(keys(is), want) {
					return
				}
				if time.Now().After(limit) {
					t.Fatalf("told %q, want %q", keys(is), want)
				}
			}
		}
		tell()
		w.put(other, "dir/a", "1", nil)
		tell("dir/a")
		w.put(other, "dir/b/c", "1", kept(time.Second))
		tell("dir/a", "dir/b/c")
		w.put(other, "dir", "not below", nil)
		w.put(other, "dir2/a", "not below", nil)
		quiet(w, lists)
		w.cell.Restart(w.cell.FailOver())
		w.put(other, "dir/a", "2", nil)
		tell("dir/a", "dir/b/c")
		w.endSession()
		w.put(other, "dir/z", "1", ttl(6*time.Second))
		tell("dir/a", "dir/b/c", "dir/z")
		tell("dir/a", "dir/b/c")
		w.cell.Pause("two")
		tell("dir/a")
		if err := s.DeleteTree(t.Context(), "dir"); err != nil {
			t.Fatal(err)
		}
		tell()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if list, ok := <-lists; ok {
			t.Errorf("after Close: %q", keys(list))
		}
	})
}
