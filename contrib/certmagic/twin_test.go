package chubbystorage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/certmagic"
)

// Random calls have the results that they have with certmagic.FileStorage.
func TestLikeFileStorage(t *testing.T) {
	files := &certmagic.FileStorage{Path: t.TempDir()}
	inWorld(t, func(w *world) {
		s := w.host("one")
		for seed := range uint64(2) {
			likeFiles(w.ctx, t, s, files, rand.New(rand.NewPCG(seed, 0)), 150)
		}
	})
}

func likeFiles(ctx context.Context, t *testing.T, s, files certmagic.Storage, r *rand.Rand, calls int) {
	t.Helper()
	dirs := []string{"", "d", "d/d", "Dir", "other.d/d", "d%2Fx", "ü"}
	names := []string{"f", "F", "wildcard_.example.com.crt", "a b", "50%", "%41", "é", "...", ".f", "x~", "f%c"}
	sizes := []int{0, 1, 100, chunk - 1, chunk, 2*chunk + 7}
	for range calls {
		key := strings.TrimPrefix(dirs[r.IntN(len(dirs))]+"/"+names[r.IntN(len(names))], "/")
		dir := dirs[1+r.IntN(len(dirs)-1)]
		switch r.IntN(12) {
		case 0, 1, 2, 3:
			value := bytes.Repeat([]byte{byte(r.IntN(256))}, sizes[r.IntN(len(sizes))])
			same(t, "Store "+key, s.Store(ctx, key, value), files.Store(ctx, key, value))
		case 4, 5:
			mine, err := s.Load(ctx, key)
			theirs, theirErr := files.Load(ctx, key)
			same(t, "Load "+key, err, theirErr)
			if !bytes.Equal(mine, theirs) {
				t.Fatalf("Load %s: %d bytes; want %d", key, len(mine), len(theirs))
			}
		case 6:
			same(t, "Delete "+key, s.Delete(ctx, key), files.Delete(ctx, key))
		case 7:
			if r.IntN(3) == 0 {
				same(t, "Delete "+dir, s.Delete(ctx, dir), files.Delete(ctx, dir))
			}
		case 8:
			mine, err := s.Stat(ctx, key)
			theirs, theirErr := files.Stat(ctx, key)
			same(t, "Stat "+key, err, theirErr)
			if mine.Key != theirs.Key || mine.Size != theirs.Size || mine.IsTerminal != theirs.IsTerminal || err == nil && mine.Modified.IsZero() {
				t.Fatalf("Stat %s: %+v; want %+v", key, mine, theirs)
			}
		case 9:
			mine, err := s.Stat(ctx, dir)
			theirs, theirErr := files.Stat(ctx, dir)
			same(t, "Stat "+dir, err, theirErr)
			if mine.Key != theirs.Key || mine.IsTerminal != theirs.IsTerminal {
				t.Fatalf("Stat %s: %+v; want %+v", dir, mine, theirs)
			}
		case 10:
			for _, k := range []string{key, dir} {
				if mine, theirs := s.Exists(ctx, k), files.Exists(ctx, k); mine != theirs {
					t.Fatalf("Exists %s: %v; want %v", k, mine, theirs)
				}
			}
		case 11:
			for _, k := range []string{key, dir} {
				recursive := r.IntN(2) == 0
				mine, err := s.List(ctx, k, recursive)
				theirs, theirErr := files.List(ctx, k, recursive)
				what := fmt.Sprintf("List %s, recursive %v", k, recursive)
				same(t, what, err, theirErr)
				slices.Sort(mine)
				slices.Sort(theirs)
				if !slices.Equal(mine, theirs) {
					t.Fatalf("%s: %q; want %q", what, mine, theirs)
				}
			}
		}
	}
}

// same compares errors, as far as CertMagic looks at them.
func same(t *testing.T, what string, mine, theirs error) {
	t.Helper()
	if (mine == nil) != (theirs == nil) || errors.Is(mine, fs.ErrNotExist) != errors.Is(theirs, fs.ErrNotExist) {
		t.Fatalf("%s: %v; want %v", what, mine, theirs)
	}
}
