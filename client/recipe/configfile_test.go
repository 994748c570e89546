//go:build linux

package recipe

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const configPath = "/ls/local/config/limit"

func number(contents []byte) (int, error) { return strconv.Atoi(string(contents)) }

// watchNumber watches the file on a host; what is told goes into the channels.
func (w *world) watchNumber(host string, byDefault *int) (f *ConfigFile[int], values chan int, faults chan error) {
	w.t.Helper()
	values, faults = make(chan int, 100), make(chan error, 100)
	cfg := w.config(host)
	f, err := WatchConfig(w.ctx, cfg, configPath, number, ConfigFileOptions[int]{
		Default: byDefault, OnChange: func(n int) { values <- n }, OnError: func(err error) { faults <- err },
	})
	w.ok(err)
	w.t.Cleanup(f.Close)
	return f, values, faults
}

// is fails the test unless the file has that value, and is as fresh, once everything has come to rest.
func (w *world) is(f *ConfigFile[int], want int, fresh bool) {
	w.t.Helper()
	pass(time.Second)
	if got := f.Value(); got != want || f.Fresh() != fresh {
		w.t.Errorf("%d, fresh %v; want %d, %v", got, f.Fresh(), want, fresh)
	}
}

// The newest value that can be decoded is served, whatever happens to file, session and cell.
func TestWatchConfig(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		c := w.dial("writer")
		w.mkdir(c, "/ls/local/config")
		byDefault := 7
		f, values, faults := w.watchNumber("h1", &byDefault)
		w.is(f, 7, true)
		w.put(c, configPath, "1")
		w.is(f, 1, true)
		w.put(c, configPath, "many")
		w.is(f, 1, false)
		if err := <-faults; !errors.Is(err, api.InvalidArgument) || !errors.Is(err, strconv.ErrSyntax) {
			t.Errorf("contents that cannot be decoded: %v", err)
		}
		pass(2 * verify)
		if len(faults) > 0 {
			t.Errorf("contents that cannot be decoded are told again: %v", <-faults)
		}
		w.put(c, configPath, "2")
		w.is(f, 2, true)
		w.failOver()
		w.is(f, 2, true)
		w.rm(c, configPath)
		w.is(f, 2, false)
		if err := <-faults; !errors.Is(err, api.NotFound) {
			t.Errorf("the file was deleted: %v", err)
		}
		w.put(c, configPath, "3")
		w.is(f, 3, true)
		f.mu.Lock()
		session := f.c.Session()
		f.mu.Unlock()
		w.Expire(session)
		w.is(f, 3, true)
		w.put(c, configPath, "4")
		w.is(f, 4, true)
		w.Cut("h1")
		w.is(f, 4, true) // the lease runs
		pass(api.DefaultLease)
		w.is(f, 4, false)
		w.put(c, configPath, "5")
		pass(api.DefaultGrace) // the session is gone
		w.is(f, 4, false)
		w.Heal("h1")
		pass(10 * time.Second)
		w.is(f, 5, true)
		close(values)
		for _, want := range []int{7, 1, 2, 3, 4, 5} {
			if got := <-values; got != want {
				t.Errorf("told %d; want %d", got, want)
			}
		}
		if got, more := <-values; more {
			t.Errorf("told %d as well", got)
		}
	})
}

// Without a default the first value is waited for, as long as the caller likes.
func TestWatchConfigWaits(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.dial("writer")
		ctx, cancel := w.brief(10 * time.Second)
		defer cancel()
		_, err := WatchConfig(ctx, w.config("h1"), configPath, number, ConfigFileOptions[int]{})
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, api.NotFound) {
			t.Errorf("without a file: %v", err)
		}
		go func() {
			pass(15 * time.Second)
			w.mkdir(c, "/ls/local/config")
			w.put(c, configPath, "one")
			pass(15 * time.Second)
			w.put(c, configPath, "1")
		}()
		began := time.Now()
		f, _, _ := w.watchNumber("h2", nil)
		if took := time.Since(began); f.Value() != 1 || took < 30*time.Second || took > 31*time.Second {
			t.Errorf("%d after %v", f.Value(), took)
		}
		if _, err := WatchConfig(w.ctx, w.config("h1"), "config", number, ConfigFileOptions[int]{}); !errors.Is(err, api.InvalidPath) {
			t.Errorf("a bad path: %v", err)
		}
		if _, err := WatchConfig(w.ctx, w.config("h1"), "/ls/local", number, ConfigFileOptions[int]{}); !errors.Is(err, api.IsDirectory) {
			t.Errorf("a directory: %v", err)
		}
		cfg := w.config("h1")
		cfg.Cell = "elsewhere"
		if _, err := WatchConfig(w.ctx, cfg, "/ls/elsewhere/file", number, ConfigFileOptions[int]{}); !errors.Is(err, api.WrongCell) {
			t.Errorf("another cell: %v", err)
		}
	})
}

// A wait that was given up is told apart from one whose time was over.
func TestWatchConfigGivenUp(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.ctx)
		time.AfterFunc(time.Second, cancel)
		_, err := WatchConfig(ctx, w.config("h1"), configPath, number, ConfigFileOptions[int]{})
		if api.CodeOf(err) != api.Cancelled || !errors.Is(err, context.Canceled) || !errors.Is(err, api.NotFound) {
			t.Errorf("%v, code %v", err, api.CodeOf(err))
		}
	})
}

// What would bring the program down from a goroutine of the library is refused by the call.
func TestWatchConfigOfNothing(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		var nobody *client.Keeper
		for what, err := range map[string]error{
			"no decode":           second(WatchConfig[int](w.ctx, w.config("h1"), configPath, nil, ConfigFileOptions[int]{})),
			"no sessions":         second(WatchConfig(w.ctx, nil, configPath, number, ConfigFileOptions[int]{})),
			"no keeper":           second(WatchConfig(w.ctx, nobody, configPath, number, ConfigFileOptions[int]{})),
			"a tree, no sessions": second(WatchTree(w.ctx, nil, "/ls/local/config", TreeOptions{})),
			"a tree, no keeper":   second(WatchTree(w.ctx, nobody, "/ls/local/config", TreeOptions{})),
		} {
			if !errors.Is(err, api.InvalidArgument) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }
