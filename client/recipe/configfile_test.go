//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
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
	w.T.Helper()
	values, faults = make(chan int, 100), make(chan error, 100)
	cfg := w.ConfigOf(host)
	f, err := WatchConfig(w.Ctx, cfg, configPath, number, ConfigFileOptions[int]{
		Default: byDefault, OnChange: func(n int) { values <- n }, OnError: func(err error) { faults <- err },
	})
	w.OK(err)
	w.T.Cleanup(f.Close)
	return f, values, faults
}

// is fails the test unless the file has that value, and is as fresh, once everything has come to rest.
func (w *world) is(f *ConfigFile[int], want int, fresh bool) {
	w.T.Helper()
	pass(time.Second)
	if got := f.Value(); got != want || f.Fresh() != fresh {
		w.T.Errorf("%d, fresh %v; want %d, %v", got, f.Fresh(), want, fresh)
	}
}

// The newest value that can be decoded is served, whatever happens to file, session and cell.
func TestWatchConfig(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		c := w.Client("writer")
		w.Mkdir(c, "/ls/local/config")
		byDefault := 7
		f, values, faults := w.watchNumber("h1", &byDefault)
		w.is(f, 7, true)
		w.Put(c, configPath, "1")
		w.is(f, 1, true)
		w.Put(c, configPath, "many")
		w.is(f, 1, false)
		if err := <-faults; !errors.Is(err, api.InvalidArgument) || !errors.Is(err, strconv.ErrSyntax) {
			t.Errorf("contents that cannot be decoded: %v", err)
		}
		pass(2 * verify)
		if len(faults) > 0 {
			t.Errorf("contents that cannot be decoded are told again: %v", <-faults)
		}
		w.Put(c, configPath, "2")
		w.is(f, 2, true)
		w.Succeed()
		w.is(f, 2, true)
		w.Rm(c, configPath)
		w.is(f, 2, false)
		wants(t, "the file was deleted", <-faults, api.NotFound)
		w.Put(c, configPath, "3")
		w.is(f, 3, true)
		f.mu.Lock()
		session := f.c.Session()
		f.mu.Unlock()
		w.Expire(session)
		w.is(f, 3, true)
		w.Put(c, configPath, "4")
		w.is(f, 4, true)
		w.Cut("h1")
		w.is(f, 4, true) // the lease runs
		pass(api.DefaultLease)
		w.is(f, 4, false)
		w.Put(c, configPath, "5")
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
		c := w.Client("writer")
		_, err := WatchConfig(w.brief(10*time.Second), w.ConfigOf("h1"), configPath, number, ConfigFileOptions[int]{})
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, api.NotFound) {
			t.Errorf("without a file: %v", err)
		}
		go func() {
			pass(15 * time.Second)
			w.Mkdir(c, "/ls/local/config")
			w.Put(c, configPath, "one")
			pass(15 * time.Second)
			w.Put(c, configPath, "1")
		}()
		began := time.Now()
		f, _, _ := w.watchNumber("h2", nil)
		if took := time.Since(began); f.Value() != 1 || took < 30*time.Second || took > 31*time.Second {
			t.Errorf("%d after %v", f.Value(), took)
		}
		wants(t, "a bad path", second(WatchConfig(w.Ctx, w.ConfigOf("h1"), "config", number, ConfigFileOptions[int]{})), api.InvalidPath)
		wants(t, "a directory", second(WatchConfig(w.Ctx, w.ConfigOf("h1"), "/ls/local", number, ConfigFileOptions[int]{})), api.IsDirectory)
		cfg := w.ConfigOf("h1")
		cfg.Cell = "elsewhere"
		wants(t, "another cell", second(WatchConfig(w.Ctx, cfg, "/ls/elsewhere/file", number, ConfigFileOptions[int]{})), api.WrongCell)
	})
}

// A wait that was given up is told apart from one whose time was over.
func TestWatchConfigGivenUp(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.Ctx)
		time.AfterFunc(time.Second, cancel)
		_, err := WatchConfig(ctx, w.ConfigOf("h1"), configPath, number, ConfigFileOptions[int]{})
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
			"no decode":           second(WatchConfig[int](w.Ctx, w.ConfigOf("h1"), configPath, nil, ConfigFileOptions[int]{})),
			"no sessions":         second(WatchConfig(w.Ctx, nil, configPath, number, ConfigFileOptions[int]{})),
			"no keeper":           second(WatchConfig(w.Ctx, nobody, configPath, number, ConfigFileOptions[int]{})),
			"a tree, no sessions": second(WatchTree(w.Ctx, nil, "/ls/local/config", TreeOptions{})),
			"a tree, no keeper":   second(WatchTree(w.Ctx, nobody, "/ls/local/config", TreeOptions{})),
		} {
			if !errors.Is(err, api.InvalidArgument) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// Files that are watched over a Keeper share its session with the rest of the program, have the next when it is lost, and
// leave it open when they are closed.
func TestWatchConfigOverAKeeper(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		writer := w.Client("writer")
		k := ok(client.Keep(w.Ctx, w.ConfigOf("h1")))(w)
		defer func() { w.OK(k.Close(context.Background())) }()
		mine := func() (id api.SessionID) {
			t.Helper()
			w.OK(k.Do(w.Ctx, func(c *client.Client) error { id = c.Session(); return nil }))
			list, err := writer.Cell().Sessions(w.Ctx)
			if err != nil || len(list) != 2 {
				t.Errorf("%d sessions, %v; want the writer's and one", len(list), err)
			}
			return id
		}
		var files []*ConfigFile[int]
		for i := range 3 {
			path := fmt.Sprintf("/ls/local/limit%d", i)
			w.Put(writer, path, fmt.Sprint(i))
			f := ok(WatchConfig(w.Ctx, k, path, number, ConfigFileOptions[int]{}))(w)
			files = append(files, f)
		}
		for i, f := range files {
			w.is(f, i, true)
		}
		first := mine()
		w.Expire(first)
		w.Settle()
		for i, f := range files {
			w.Put(writer, fmt.Sprintf("/ls/local/limit%d", i), fmt.Sprint(10+i))
			w.is(f, 10+i, true)
		}
		if mine() == first {
			t.Error("the session is the one that was lost")
		}
		for _, f := range files {
			f.Close()
		}
		second := mine()
		pass(time.Second)
		if mine() != second {
			t.Error("Close of the files has closed the session")
		}

		// An error of a function ends Renew, and not the session; the end of the Keeper ends it, too.
		own := errors.New("the function's own error")
		if err := k.Renew(w.Ctx, func(context.Context, *client.Client) error { return own }); !errors.Is(err, own) || mine() != second {
			t.Errorf("Renew: %v", err)
		}
		ended := make(chan error, 1)
		go func() {
			ended <- k.Renew(w.Ctx, func(ctx context.Context, _ *client.Client) error { <-ctx.Done(); return nil })
		}()
		pass(time.Second)
		w.OK(k.Close(w.Ctx))
		wants(t, "after Close", <-ended, client.Closed)
	})
}
