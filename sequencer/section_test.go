package sequencer_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

// running is a request inside a Do that stays until the test ends it.
type running struct {
	entered chan context.Context // gets serve's context, once, if serve is called
	end     chan struct{}
	result  chan error
}

func begin(ctx context.Context, guard *sequencer.Guard, token uint64) *running {
	r := &running{entered: make(chan context.Context, 1), end: make(chan struct{}), result: make(chan error, 1)}
	go func() {
		r.result <- guard.Do(ctx, of(primary, token).String(), func(ctx context.Context) error {
			r.entered <- ctx
			<-r.end
			return nil
		})
	}()
	return r
}

func (r *running) waits(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if len(r.entered) != 0 || len(r.result) != 0 {
		t.Fatal("it does not wait")
	}
}

func (r *running) isInside(t *testing.T) context.Context {
	t.Helper()
	synctest.Wait()
	select {
	case ctx := <-r.entered:
		return ctx
	default:
		t.Fatal("it was not let in")
		return nil
	}
}

func (r *running) isRefused(t *testing.T, code api.Code) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-r.result:
		if !errors.Is(err, code) || len(r.entered) != 0 {
			t.Fatalf("it ended with %v; want %v without being let in", err, code)
		}
	default:
		t.Fatalf("it was not refused; want %v", code)
	}
}

// The steps of a hand-over: a newer token stops older requests from entering,
// cancels those inside, waits for them, and enters.
func TestNewerTokenWaitsForOlderRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, sequencer.GuardConfig{})
		first, second := begin(t.Context(), guard, 41), begin(t.Context(), guard, 41)
		ctx := first.isInside(t)
		second.isInside(t) // requests of one token run concurrently
		if s, ok := sequencer.FromContext(ctx); !ok || s != of(primary, 41) {
			t.Fatalf("FromContext = %+v, %v", s, ok)
		}

		third := begin(t.Context(), guard, 57)
		third.waits(t)
		if cause := context.Cause(ctx); !errors.Is(cause, api.BadSequencer) || !strings.Contains(cause.Error(), "57 was seen") {
			t.Fatalf("the older request's context ended with %v", cause)
		}
		begin(t.Context(), guard, 41).isRefused(t, api.BadSequencer)

		// A waiting request whose token is overtaken is refused at once.
		fourth := begin(t.Context(), guard, 60)
		fourth.waits(t)
		third.isRefused(t, api.BadSequencer)

		close(first.end)
		fourth.waits(t) // for the request inside
		close(second.end)
		if ctx := fourth.isInside(t); ctx.Err() != nil {
			t.Fatalf("the newest request is let in with a context that has ended: %v", context.Cause(ctx))
		}
		close(fourth.end)
		synctest.Wait()
		for _, r := range []*running{first, second, fourth} {
			must(t, <-r.result)
		}
		if got, want := guard.Stats(), (sequencer.Stats{Accepted: 3, RefusedStale: 2}); got != want {
			t.Errorf("Stats = %+v, want %+v", got, want)
		}
	})
}

// The wait ends with the caller's context, and older requests stay out even
// though the newer one never came in.
func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, sequencer.GuardConfig{})
		deaf := begin(t.Context(), guard, 41)
		deaf.isInside(t)

		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		late := begin(short, guard, 57)
		late.waits(t)
		<-short.Done()
		late.isRefused(t, api.DeadlineExceeded)

		cancelled, cancel := context.WithCancel(t.Context())
		gone := begin(cancelled, guard, 57)
		gone.waits(t)
		cancel()
		gone.isRefused(t, api.Cancelled)

		begin(t.Context(), guard, 41).isRefused(t, api.BadSequencer)
		close(deaf.end)
		next := begin(t.Context(), guard, 57)
		next.isInside(t)
		close(next.end)
		synctest.Wait()
	})
}

func TestSectionEndsHoweverServeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, sequencer.GuardConfig{})
		text := of(primary, 41).String()
		mine := errors.New("mine")
		if err := guard.Do(t.Context(), text, func(context.Context) error { return mine }); !errors.Is(err, mine) {
			t.Errorf("Do returns %v, not serve's own error", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = guard.Do(t.Context(), text, func(context.Context) error { panic("handler") })
		}()
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_ = guard.Do(t.Context(), text, func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-exited
		next := begin(t.Context(), guard, 57)
		next.isInside(t)
		close(next.end)
		synctest.Wait()
	})
}

// A request of one lock never waits for requests of another.
func TestLocksDoNotWaitForOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, sequencer.GuardConfig{Prefix: api.MustParsePath("/ls/foo")})
		deaf := begin(t.Context(), guard, 41)
		deaf.isInside(t)
		served := false
		err := guard.Do(t.Context(), of(api.MustParsePath("/ls/foo/other"), 57).String(), func(context.Context) error {
			served = true
			return nil
		})
		if err != nil || !served {
			t.Errorf("served %v, %v", served, err)
		}
		close(deaf.end)
		synctest.Wait()
	})
}

// Once a section of a newer token has begun, no section of an older one runs or
// begins.
func TestSectionsOfTwoTokensNeverOverlap(t *testing.T) {
	const callers, requests = 8, 300
	guard := newGuard(t, sequencer.GuardConfig{})
	var tokens, begun atomic.Uint64
	var group sync.WaitGroup
	tokens.Store(100)
	for range callers {
		group.Go(func() {
			for i := range requests {
				token := tokens.Load() - uint64(i%3)
				if i%4 == 0 {
					token = tokens.Add(1)
				}
				err := guard.Do(t.Context(), of(primary, token).String(), func(context.Context) error {
					for before := begun.Load(); before < token && !begun.CompareAndSwap(before, token); {
						before = begun.Load()
					}
					for range 40 * (i % 5) {
						runtime.Gosched()
						if newest := begun.Load(); newest != token {
							t.Errorf("a section of token %d runs, and one of %d has begun", token, newest)
						}
					}
					return nil
				})
				if err != nil && !errors.Is(err, api.BadSequencer) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if stats := guard.Stats(); stats.Accepted < 10 || stats.RefusedStale < 10 || stats.RefusedOther != 0 {
		t.Errorf("%+v: the test proves nothing", stats)
	}
}

// A file that the system does not let be read, locked or replaced is Unavailable, not damaged: nobody should delete it.
func TestFileThatTheSystemRefuses(t *testing.T) {
	for name, prepare := range map[string]func(file string) error{
		"a directory in its place":           func(file string) error { return os.Mkdir(file, 0o700) },
		"a directory in place of its lock":   func(file string) error { return os.Mkdir(file+".lock", 0o700) },
		"a link to itself":                   func(file string) error { return os.Symlink(file, file) },
		"a link into a missing directory":    func(file string) error { return os.Symlink(file+"-missing/guard", file) },
		"a file in place of their directory": func(file string) error { return os.WriteFile(filepath.Dir(file)+"/file", nil, 0o600) },
	} {
		file := filepath.Join(t.TempDir(), "guard")
		must(t, prepare(file))
		if strings.HasPrefix(name, "a file") {
			file = filepath.Join(filepath.Dir(file), "file", "guard")
		}
		if store, err := sequencer.OpenFileStore(file); store != nil || !errors.Is(err, api.Unavailable) {
			t.Errorf("%s: %v, want Unavailable", name, err)
		}
	}
}

// A save that could not replace the file has stored nothing, and says so; a closed store neither saves nor loads.
func TestFileThatCannotBeReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "guard")
	store := openStore(t, file)
	must(t, os.MkdirAll(filepath.Join(file, "in the way"), 0o700))
	if err := store.Save(t.Context(), of(primary, 41)); !errors.Is(err, api.Unavailable) {
		t.Errorf("Save: %v, want Unavailable", err)
	}
	checkStored(t, store)
	must(t, store.Close())
	if seen, err := store.Load(t.Context()); !errors.Is(err, api.Unavailable) || seen != nil {
		t.Errorf("Load of a closed store: %v, %v; want Unavailable", seen, err)
	}
	if err := store.Save(t.Context(), of(primary, 41)); !errors.Is(err, api.Unavailable) {
		t.Errorf("Save into a closed store: %v, want Unavailable", err)
	}
}

// On a full disk a save leaves the file as it is. Where there is no /dev/full, it cannot be made.
func TestFullDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "guard")
	store := openStore(t, file)
	must(t, store.Save(t.Context(), of(primary, 41)))
	must(t, os.Symlink("/dev/full", file+".new"))
	if err := store.Save(t.Context(), of(primary, 57)); !errors.Is(err, api.Unavailable) {
		t.Errorf("Save: %v, want Unavailable", err)
	}
	must(t, store.Close())
	must(t, os.Remove(file+".new"))
	checkStored(t, openStore(t, file), of(primary, 41))
}

// Equal stores have equal files, and the error for a damaged one names the line.
func TestFileIsInOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "guard")
	store := openStore(t, file)
	for _, name := range strings.Split("gcfaedbh", "") {
		must(t, store.Save(t.Context(), of(api.MustParsePath("/ls/foo/"+name), 41)))
	}
	must(t, store.Close())
	text := ok(os.ReadFile(file))(t)
	lines := strings.SplitAfter(string(text), "\n")
	if len(lines) != 11 || !slices.IsSorted(lines[1:9]) {
		t.Errorf("the lines have no order:\n%s", text)
	}
	for damaged, says := range map[string]string{
		strings.Join(slices.Concat(lines[:3], []string{"x\n"}, lines[3:]), ""): "line 4",
		strings.Join(slices.Concat(lines[:5], lines[1:]), ""):                  "line 6",
		strings.Join(lines[1:], ""):                                            "does not begin",
	} {
		must(t, os.WriteFile(file, []byte(damaged), 0o600))
		if _, err := sequencer.OpenFileStore(file); !errors.Is(err, api.Corrupt) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want Corrupt with %q", err, says)
		}
	}
}

// Sequencers are written in one way by every version: what RFC 3986 calls unreserved stays as it is.
func TestUnreservedCharactersStay(t *testing.T) {
	path := "/ls/foo/az/AZ/09/a-b.c_d~e"
	text := of(api.MustParsePath(path), 41).String()
	if !strings.HasSuffix(text, ":"+path) {
		t.Errorf("the text is %q, want it to end with %q", text, path)
	}
	for n, want := range map[int]bool{sequencer.MaxText: false, sequencer.MaxText + 1: true} {
		if _, err := sequencer.Parse(strings.Repeat("x", n)); err == nil || strings.Contains(err.Error(), "bytes long") != want {
			t.Errorf("a text of %d bytes: %v", n, err)
		}
	}
}
