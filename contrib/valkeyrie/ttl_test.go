package chubbykv_test

import (
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	chubbykv "github.com/chubbylock/chubby/contrib/valkeyrie"
	"github.com/kvtools/valkeyrie/store"
)

func ttl(d time.Duration) *store.WriteOptions { return &store.WriteOptions{TTL: d} }

func kept(d time.Duration) *store.WriteOptions { return &store.WriteOptions{TTL: d, KeepAlive: true} }

// A key with a TTL is deleted when that has passed since it was written last; with KeepAlive it stays; and what
// another has written stays, too.
func TestTTL(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		s, other := w.store("one"), w.store("two")
		w.put(s, "short", "v", ttl(5*time.Second))
		w.put(s, "again", "v", ttl(5*time.Second))
		w.put(s, "kept", "v", kept(5*time.Second))
		w.put(s, "others", "v", ttl(5*time.Second))
		w.put(s, "plain", "v", ttl(5*time.Second))
		ok, pair, err := s.AtomicPut(t.Context(), "atomic", []byte("v"), nil, ttl(5*time.Second))
		if !ok || err != nil {
			t.Fatal(err)
		}
		w.sleep(4 * time.Second)
		w.put(s, "again", "w", ttl(5*time.Second))
		w.put(other, "others", "w", nil)
		w.put(s, "plain", "w", nil)
		if ok, _, err := other.AtomicPut(t.Context(), "atomic", []byte("w"), pair, kept(time.Second)); !ok || err != nil {
			t.Fatal(err)
		}
		w.want(other, "short", "v")
		w.sleep(2 * time.Second)
		for key, want := range map[string]string{"short": "", "again": "w", "kept": "v", "others": "w", "plain": "w", "atomic": "w"} {
			w.want(s, key, want)
			w.want(other, key, want)
		}
		w.sleep(4 * time.Second)
		w.want(other, "again", "")
		w.wantNodes("data", "_atomic", "_kept", "_others", "_plain")
	})
}

// The keys with a TTL of a process that has failed are gone when its lease has run out, whether they are kept or
// not; what is left of them is removed, is not in the way, and is not what another has read.
func TestTTLOfAFailedProcess(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		s, other := w.store("one", func(cfg *chubbykv.Config) { cfg.Client.Lease = 3 * time.Second }), w.store("two")
		for _, key := range []string{"dir/a", "dir/b", "dir/c", "dir/d"} {
			w.put(s, key, "v", kept(time.Second))
		}
		w.put(s, "dir/e", "v", ttl(time.Hour))
		read := w.get(other, "dir/c")
		if list := w.list(other, "dir"); len(list) != 5 {
			t.Errorf("%q", list)
		}
		w.cell.Pause("one")
		w.sleep(2 * time.Second)
		w.want(other, "dir/a", "v")
		w.sleep(8 * time.Second)
		w.want(other, "dir/a", "")
		if ok, _, err := other.AtomicPut(t.Context(), "dir/b", []byte("w"), nil, nil); !ok || err != nil {
			t.Errorf("atomic put of a new key: %t, %v", ok, err)
		}
		if ok, _, err := other.AtomicPut(t.Context(), "dir/c", []byte("w"), read, nil); ok || err != store.ErrKeyModified { //nolint:errorlint // so do callers
			t.Errorf("atomic put on a key that is gone: %t, %v", ok, err)
		}
		if err := other.Delete(t.Context(), "dir/d"); err != store.ErrKeyNotFound { //nolint:errorlint // so do callers
			t.Error(err)
		}
		if list := w.list(other, "dir"); !slices.Equal(list, []string{"dir/b"}) {
			t.Errorf("%q", list)
		}
		w.wantNodes("data", "dir", "dir/_b")
		w.wantNodes("leases")
		w.cell.Resume("one")
		w.sleep(20 * time.Second)
		w.want(s, "dir/a", "")
		w.put(s, "dir/a", "again", kept(time.Second)) // under the lease of another session
		w.want(other, "dir/a", "again")
	})
}

// A lease that somebody has deleted takes its keys with it, and is replaced by the next call.
func TestDeletedLease(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		s := w.store("one")
		w.put(s, "k", "v", kept(time.Second))
		read := w.get(s, "k")
		leases := w.nodes("leases")
		if len(leases) != 1 {
			t.Fatalf("%q", leases)
		}
		if err := w.operator.Delete(t.Context(), root+"/leases/"+leases[0]); err != nil {
			t.Fatal(err)
		}
		if ok, _, err := s.AtomicPut(t.Context(), "k", []byte("w"), read, nil); ok || api.CodeOf(err) == api.Unavailable {
			t.Errorf("atomic put: %t, %v", ok, err)
		}
		w.want(s, "k", "")
		w.put(s, "k", "again", kept(time.Second))
		w.want(s, "k", "again")
		if again := w.nodes("leases"); len(again) != 1 || again[0] == leases[0] {
			t.Errorf("%q, and then %q", leases, again)
		}
	})
}
