package chubbykv_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	chubbykv "github.com/chubbylock/chubby/contrib/valkeyrie"
	"github.com/kvtools/valkeyrie"
	"github.com/kvtools/valkeyrie/store"
)

// Random calls have the results of a map.
func TestAgainstAMap(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		stores := []*chubbykv.Store{w.store("one"), w.store("two", func(cfg *chubbykv.Config) { cfg.Client.NoCache = true })}
		model := map[string]string{}
		last := map[string]uint64{} // the index of each key, also of one that was deleted
		parts := []string{"a", "_a", ".", "..", "%", "%2F", "_", "ä", "\x00", "\xff", "a b", "A", "b"}
		random := func() string {
			var key []string
			for range 1 + rand.IntN(3) {
				key = append(key, parts[rand.IntN(len(parts))])
			}
			return strings.Join(key, "/")
		}
		for step := range 300 {
			s, key, value := stores[rand.IntN(2)], random(), string(rune('a'+step%26))
			was, there := model[key]
			switch rand.IntN(8) {
			case 0, 1:
				w.put(s, "/"+key+"/", value, nil)
				model[key] = value
			case 2:
				if err := s.Delete(t.Context(), key); (err == nil) != there || err != nil && err != store.ErrKeyNotFound { //nolint:errorlint // so do callers
					t.Errorf("step %d: delete %q, which is there: %t: %v", step, key, there, err)
				}
				delete(model, key)
			case 3:
				w.want(s, key, was)
			case 4, 5:
				previous := &store.KVPair{Key: key, LastIndex: last[key]}
				if rand.IntN(2) == 0 {
					previous = nil
				}
				fits := previous == nil && !there || previous != nil && there && last[key] == w.get(s, key).LastIndex
				ok, pair, err := s.AtomicPut(t.Context(), key, []byte(value), previous, nil)
				if ok != fits || ok != (err == nil) || ok && (string(pair.Value) != value || pair.LastIndex <= last[key]) {
					t.Errorf("step %d: atomic put of %q at %v: %t, %v, %v; want %t", step, key, previous, ok, pair, err, fits)
				}
				if ok {
					model[key] = value
				}
			case 6:
				directory := key[:max(0, strings.LastIndexByte(key, '/'))]
				want := []string{}
				for one := range model {
					if directory == "" || strings.HasPrefix(one, directory+"/") {
						want = append(want, one)
					}
				}
				slices.Sort(want)
				if is := w.list(s, directory); !slices.Equal(is, want) {
					t.Errorf("step %d: below %q: %q, want %q", step, directory, is, want)
				}
			case 7:
				if rand.IntN(5) > 0 {
					continue
				}
				_, isKey := model[key]
				below := 0
				for one := range model {
					if strings.HasPrefix(one, key+"/") {
						below++
						delete(model, one)
					}
				}
				if err := s.DeleteTree(t.Context(), key); (err == nil) != (isKey || below > 0) {
					t.Errorf("step %d: delete below %q, where %d are: %v", step, key, below, err)
				}
			}
			if pair := w.get(s, key); pair != nil {
				last[key] = pair.LastIndex
			}
		}
		if err := stores[0].DeleteTree(t.Context(), "/"); err != nil && len(model) > 0 {
			t.Error(err)
		}
		w.wantNodes("data")
	})
}

// A key that was deleted and created again, with the same value, is not what was read before.
func TestAtomicAfterRecreation(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		s, other := w.store("one"), w.store("two")
		w.put(s, "k", "v", nil)
		read := w.get(s, "k")
		if err := other.Delete(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		w.put(other, "k", "v", nil)
		if ok, _, err := s.AtomicPut(t.Context(), "k", []byte("w"), read, nil); ok || err != store.ErrKeyModified { //nolint:errorlint // so do callers
			t.Errorf("atomic put: %t, %v", ok, err)
		}
		if ok, err := s.AtomicDelete(t.Context(), "k", read); ok || err != store.ErrKeyModified { //nolint:errorlint // so do callers
			t.Errorf("atomic delete: %t, %v", ok, err)
		}
		w.want(other, "k", "v")
		if err := other.Delete(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if ok, _, err := s.AtomicPut(t.Context(), "k", []byte("w"), read, nil); ok || err != store.ErrKeyModified { //nolint:errorlint // so do callers
			t.Errorf("atomic put of a key that is gone: %t, %v", ok, err)
		}
		if ok, _, err := s.AtomicPut(t.Context(), "k", []byte("w"), &store.KVPair{Key: "k"}, nil); ok || err != store.ErrKeyModified { //nolint:errorlint // so do callers
			t.Errorf("atomic put on what tells of a deletion: %t, %v", ok, err)
		}
		if ok, err := s.AtomicDelete(t.Context(), "k", nil); ok || err != store.ErrPreviousNotSpecified { //nolint:errorlint // so do callers
			t.Errorf("atomic delete of anything: %t, %v", ok, err)
		}
		w.want(s, "k", "")
		w.put(s, "a/b/c", "v", nil)
		w.put(s, "a/d", "v", nil)
		if err := s.Delete(t.Context(), "a/b/c"); err != nil {
			t.Fatal(err)
		}
		w.wantNodes("data", "a", "a/_d") // a directory that has become empty is gone
	})
}

// Up to 64 keys are deleted at one moment; more, and keys that others delete meanwhile, are all deleted.
func TestDeleteTree(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		s, other := w.store("one"), w.store("two")
		for i := range 70 {
			w.put(s, "dir/"+string(rune('a'+i%7))+"/"+string(rune('A'+i)), "v", nil)
		}
		w.put(s, "dir", "stays", nil)
		w.put(s, "dir2/k", "stays", nil)
		deleted := make(chan struct{})
		go func() {
			defer close(deleted)
			for i := range 70 {
				_ = other.Delete(t.Context(), "dir/"+string(rune('a'+i%7))+"/"+string(rune('A'+i))) // it may be gone
			}
		}()
		if err := s.DeleteTree(t.Context(), "dir"); err != nil {
			t.Error(err)
		}
		<-deleted
		w.wantNodes("data", "_dir", "dir2", "dir2/_k")
		if err := s.DeleteTree(t.Context(), "dir"); err != nil {
			t.Errorf("below a key: %v", err)
		}
		if err := s.DeleteTree(t.Context(), "absent"); err != store.ErrKeyNotFound { //nolint:errorlint // so do callers
			t.Error(err)
		}
		if err := s.DeleteTree(t.Context(), ""); err != nil {
			t.Error(err)
		}
		w.wantNodes("data")
	})
}

// What is too long is refused, and says how long it may be; the longest is not.
func TestLimits(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		s := w.store("one")
		for key, code := range map[string]api.Code{
			"": api.InvalidArgument, "//": api.InvalidArgument,
			strings.Repeat("x", api.MaxComponent):                     api.InvalidArgument,
			strings.Repeat("x/", api.MaxDepth):                        api.InvalidArgument,
			strings.Repeat(strings.Repeat("x", 200)+"/", 6):           api.InvalidArgument,
			strings.Repeat("x", api.MaxComponent-1):                   api.OK,
			strings.Repeat(strings.Repeat("x", 140)+"/", 7)[:7*140+6]: api.OK,
			strings.Repeat("x/", api.MaxDepth-3):                      api.OK,
		} {
			err := s.Put(t.Context(), key, make([]byte, chubbykv.MaxValue), &store.WriteOptions{TTL: 1 << 40})
			if api.CodeOf(err) != code {
				t.Errorf("put %.20q of %d bytes: %v", key, len(key), err)
			}
			if _, err := s.Get(t.Context(), key, nil); api.CodeOf(err) != code {
				t.Errorf("get %.20q: %v", key, err)
			}
		}
		err := s.Put(t.Context(), "k", make([]byte, chubbykv.MaxValue+1), nil)
		if api.CodeOf(err) != api.TooLarge || !strings.Contains(err.Error(), "at most 253952") {
			t.Error(err)
		}
		if _, err := s.NewLock(t.Context(), "k", &store.LockOptions{Value: make([]byte, chubbykv.MaxValue+1)}); api.CodeOf(err) != api.TooLarge {
			t.Error(err)
		}
		w.want(s, "k", "")
	})
}

// The file of another program is no value, and says so.
func TestForeignFile(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		s := w.store("one")
		w.put(s, "k", "v", nil)
		if _, err := w.operator.Put(t.Context(), root+"/data/_k", []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), "k", nil); api.CodeOf(err) != api.Corrupt {
			t.Error(err)
		}
		if _, err := w.operator.Put(t.Context(), root+"/data/stray", nil); err != nil { // no key has that name
			t.Fatal(err)
		}
		w.put(s, "k", "v", nil)
		if list := w.list(s, ""); !slices.Equal(list, []string{"k"}) {
			t.Errorf("%q", list)
		}
	})
}

// The library makes a Store by its name, once the program has registered it.
func TestRegister(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		valkeyrie.Register(chubbykv.StoreName, chubbykv.NewStore)
		defer valkeyrie.Unregister(chubbykv.StoreName)
		kv, err := valkeyrie.NewStore(t.Context(), chubbykv.StoreName, w.cell.Servers(), &chubbykv.Config{Path: root, Client: client.Config{Dialer: w.cell.DialFrom("one")}})
		if err != nil {
			t.Fatal(err)
		}
		w.put(kv, "k", "v", nil)
		if err := kv.Close(); err != nil {
			t.Error(err)
		}
		if err := kv.Put(t.Context(), "k", nil, nil); !errors.Is(err, client.Closed) {
			t.Errorf("after Close: %v", err)
		}
		if _, err := kv.Watch(t.Context(), "k", nil); err == nil {
			t.Error("a watch begins after Close")
		}
		if err := kv.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}
		var config *store.InvalidConfigurationError
		if _, err := valkeyrie.NewStore(t.Context(), chubbykv.StoreName, nil, 7); !errors.As(err, &config) {
			t.Error(err)
		}
		for _, cfg := range []*chubbykv.Config{{Path: "kv"}, {Path: "/ls/local"}, {LockDelay: 2 * api.MaxLockDelay}, {Client: client.Config{Lease: -1}}} {
			if kv, err := valkeyrie.NewStore(t.Context(), chubbykv.StoreName, nil, cfg); err == nil || kv != nil {
				t.Errorf("%+v: %v", cfg, err)
			}
		}
	})
}
