package sequencer

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/chubbylock/chubby/api"
)

type forgetful struct{}

func (forgetful) Load(context.Context) ([]Sequencer, error) { return nil, nil }
func (forgetful) Save(context.Context, Sequencer) error     { return nil }

// A guard keeps one text of each lock, however often locks change hands.
func TestTableDoesNotGrow(t *testing.T) {
	guard, err := NewGuard(t.Context(), GuardConfig{Prefix: api.MustParsePath("/ls/foo"), Store: forgetful{}})
	must(t, err)
	for token := range 100 {
		path := api.MustParsePath([]string{"/ls/foo/a", "/ls/foo/b"}[token%2])
		s := Sequencer{Cell: "00112233445566778899aabbccddeeff", Path: path, Mode: api.Exclusive, Generation: api.Generation(token + 1)}
		_, err := guard.Check(t.Context(), s.String())
		must(t, err)
	}
	if texts, locks := len(*guard.newest.Load()), len(guard.locks); texts != 2 || locks != 2 {
		t.Errorf("%d texts of %d locks", texts, locks)
	}
}

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
	var told *Refusal
	if !errors.As(err, &told) || !told.stale || told.Token != 41 || told.Newest != 57 {
		t.Errorf("the request of token 41 gets %v, want a refusal with both tokens", err)
	}
}

// Whoever waits for a FileStore until its time runs out does not get in beside the one who uses it.
func TestFileStoreIsForOneAtATime(t *testing.T) {
	store, err := openFileStore(filepath.Join(t.TempDir(), "guard"), func(string) error { return nil })
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	store.busy <- struct{}{} // somebody uses it
	if _, err := store.Load(ctx); !errors.Is(err, api.Unavailable) || len(store.busy) != 1 {
		t.Errorf("Load returned %v; still in use: %v", err, len(store.busy) == 1)
	}
	<-store.busy
	must(t, store.Close())
}

// A process that crashes between the rename and the sync of the directory
// leaves a file that a later crash of the machine may undo. A store that opens
// the file must make it durable before requests are let in by its contents.
func TestWhatIsReadIsDurable(t *testing.T) {
	name := filepath.Join(t.TempDir(), "guard")
	crash := errors.New("the process ends here")
	durable := true // whether the file's contents survive a crash of the machine
	store, err := openFileStore(name, func(string) error { return nil })
	must(t, err)
	store.sync = func(string) error {
		durable = false
		return crash
	}
	s := Sequencer{Cell: "00112233445566778899aabbccddeeff", Path: api.MustParsePath("/ls/foo/primary"), Mode: api.Exclusive, Generation: 57}
	if err := store.Save(t.Context(), s); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	_ = store.Close()
	if _, err := openFileStore(name, func(string) error { return crash }); !errors.Is(err, api.Unavailable) {
		t.Errorf("opened with a directory that cannot be synced: %v", err)
	}
	store, err = openFileStore(name, func(directory string) error {
		durable = directory == filepath.Dir(name)
		return nil
	})
	must(t, err)
	defer store.Close()
	if seen, err := store.Load(t.Context()); err != nil || len(seen) != 1 || seen[0] != s || !durable {
		t.Errorf("%v (%v) is used; durable: %t", seen, err, durable)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
