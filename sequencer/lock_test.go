package sequencer

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// A request of the newest token may enter after its token was published, and before older requests are cancelled. It is no
// older request.
func TestSupersedeSparesTheNewest(t *testing.T) {
	s := Sequencer{Cell: "00112233445566778899aabbccddeeff", Path: api.MustParsePath("/ls/foo/a"), Mode: api.Exclusive, Generation: 57}
	l := newLock()
	l.raise(57)
	newest, waited, err := l.enter(t.Context(), s)
	if err != nil || waited {
		t.Fatal(waited, err)
	}
	l.supersede(57)
	if err := newest.ctx.Err(); err != nil {
		t.Errorf("the newest request was cancelled: %v", err)
	}
	l.supersede(58)
	var told *Refusal
	if !errors.As(context.Cause(newest.ctx), &told) || told.Token != 57 || told.Newest != 58 {
		t.Errorf("an older request ends with %v, want a refusal with both tokens", context.Cause(newest.ctx))
	}
	l.leave(newest)
}

// The newest token of a lock only rises, and whoever comes with a lower one is told both.
func TestNewestOnlyRises(t *testing.T) {
	s := Sequencer{Cell: "00112233445566778899aabbccddeeff", Path: api.MustParsePath("/ls/foo/a"), Mode: api.Exclusive, Generation: 41}
	l := newLock()
	l.raise(57)
	l.raise(41)
	_, _, err := l.enter(t.Context(), s)
	var told *staleError
	if !errors.As(err, &told) || told.seq != s || told.newest != 57 {
		t.Errorf("the request of token 41 gets %v, want a refusal with both tokens", err)
	}
}

// Whoever waits for a FileStore until its time runs out does not get in beside the one who uses it.
func TestFileStoreIsForOneAtATime(t *testing.T) {
	store, err := openFileStore(filepath.Join(t.TempDir(), "guard"), func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	store.busy <- struct{}{} // somebody uses it
	if _, err := store.Load(ctx); !errors.Is(err, api.Unavailable) || len(store.busy) != 1 {
		t.Errorf("Load returned %v; still in use: %v", err, len(store.busy) == 1)
	}
	<-store.busy
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
