package chubbyvault

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/sdk/physical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
)

// The SDK's own suite.
func TestExercise(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		one, two := w.backend("one"), w.backend("two")
		physical.ExerciseBackend(t, one)
		physical.ExerciseBackend_ListPrefix(t, two)
		physical.ExerciseHABackend(t, one, two)
		if left := append(w.tree(root+"/data"), w.tree(root+"/chunks")...); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
}

// The same calls are made of this backend and of the SDK's own in memory, and have the same results.
func TestAgainstTheSDKsBackend(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		own := w.backend("one")
		model, err := inmem.NewInmem(nil, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		parts := []string{"a", "_a", "", ".", "..", "%", "%2F", "_", "ä", "\x00", "\xff", "a b", "\u200b", "A"}
		key := func() string {
			var key []string
			for range 1 + rand.IntN(3) {
				key = append(key, parts[rand.IntN(len(parts))])
			}
			return strings.Join(key, "/")
		}
		for step := range 150 {
			k := key()
			switch rand.IntN(6) {
			case 0, 1:
				size := []int{0, 1, 1000, maxInline, maxInline + 1, api.MaxContents + 1, 3 * api.MaxContents}[rand.IntN(7)]
				entry := &physical.Entry{Key: k, Value: bytes.Repeat([]byte{byte(step)}, size)}
				if err := own.Put(t.Context(), entry); err != nil {
					t.Fatal(err)
				}
				if err := model.Put(t.Context(), entry); err != nil {
					t.Fatal(err)
				}
			case 2:
				if err := own.Delete(t.Context(), k); err != nil {
					t.Fatal(err)
				}
				if err := model.Delete(t.Context(), k); err != nil {
					t.Fatal(err)
				}
			case 3, 4:
				entry, err := model.Get(t.Context(), k)
				if err != nil {
					t.Fatal(err)
				}
				if entry == nil {
					w.want(own, k, nil)
				} else {
					w.want(own, k, append([]byte{}, entry.Value...))
				}
			case 5:
				k = k[:rand.IntN(len(k)+1)]
				is, err := own.List(t.Context(), k)
				if err != nil {
					t.Fatal(err)
				}
				should, err := model.List(t.Context(), k)
				if err != nil {
					t.Fatal(err)
				}
				slices.Sort(should)
				if !slices.Equal(is, should) {
					t.Errorf("step %d: the keys of prefix %q are %q, want %q", step, k, is, should)
				}
			}
		}
		for _, k := range all(t, model, "") {
			if err := own.Delete(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}
		if left := append(w.tree(root+"/data"), w.tree(root+"/chunks")...); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
}

// all lists the keys of all entries.
func all(t *testing.T, b physical.Backend, prefix string) (keys []string) {
	list, err := b.List(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range list {
		if strings.HasSuffix(key, "/") {
			keys = append(keys, all(t, b, prefix+key)...)
		} else {
			keys = append(keys, prefix+key)
		}
	}
	return keys
}

// What is too long is refused, with the words that Vault looks for, and is not there.
func TestLimits(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		b := w.backend("one")
		for _, row := range []struct {
			key  string
			size int
			want string
			code api.Code
		}{
			{"value", MaxValue + 1, physical.ErrValueTooLarge, api.TooLarge},
			{strings.Repeat("x", api.MaxComponent), 0, physical.ErrKeyTooLarge, api.InvalidArgument},
			{strings.Repeat("x/", api.MaxDepth), 0, physical.ErrKeyTooLarge, api.InvalidArgument},
			{strings.Repeat(strings.Repeat("x", 200)+"/", 5), 0, physical.ErrKeyTooLarge, api.InvalidArgument},
		} {
			err := b.Put(t.Context(), &physical.Entry{Key: row.key, Value: make([]byte, row.size)})
			if err == nil || !strings.Contains(err.Error(), row.want) || api.CodeOf(err) != row.code || !strings.Contains(err.Error(), fmt.Sprint(api.MaxPath)) && row.size == 0 {
				t.Errorf("%.20s: %v", row.key, err)
			}
			w.want(b, row.key, nil)
			if err := b.Delete(t.Context(), row.key); err != nil {
				t.Error(err)
			}
			if list, err := b.List(t.Context(), row.key+"/"); len(list) > 0 || err != nil {
				t.Errorf("%q, %v", list, err)
			}
		}
		w.put(b, "value", make([]byte, MaxValue))
		w.want(b, "value", make([]byte, MaxValue))
		if _, err := b.LockWith(strings.Repeat("x", api.MaxComponent), ""); api.CodeOf(err) != api.InvalidArgument {
			t.Error(err)
		}
		if _, err := b.LockWith("x", string(make([]byte, api.MaxContents+1))); api.CodeOf(err) != api.TooLarge {
			t.Error(err)
		}
	})
}

// A directory that a process has left empty is not listed, nor one that has only such directories.
func TestEmptyDirectoriesAreNotListed(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		b := w.backend("one")
		w.put(b, "a/b", nil)
		for _, dir := range []string{"/data/a/x", "/data/y/z"} {
			if err := w.operator.MkdirAll(t.Context(), root+dir); err != nil {
				t.Fatal(err)
			}
		}
		for prefix, want := range map[string][]string{"": {"a/"}, "a/": {"b"}, "y/": {}} {
			if list, err := b.List(t.Context(), prefix); err != nil || !slices.Equal(list, want) {
				t.Errorf("the keys of prefix %q are %q, %v; want %q", prefix, list, err, want)
			}
		}
	})
}
