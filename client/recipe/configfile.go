package recipe

import (
	"context"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// ConfigFile is the value of a file that everybody is to have the newest of: it is decoded when it
// changes, and kept here, so that Value costs nothing. What has been read is served on whatever happens
// to the file, the session or the cell.
//
// It has a session of its own, or one of a client.Keeper, opened again when it is lost, and two
// goroutines besides, which Close waits for.
type ConfigFile[T any] struct {
	path   string
	decode func(contents []byte) (T, error)
	o      ConfigFileOptions[T]

	refused api.Generation // of the contents that could not be decoded last; follow's own

	upkeep // its mutex guards what follows
	value  T
	stat   api.Stat // of the file that the value was decoded from; zero of the default
	seen   bool     // the value is what the file was when it was last looked at, and nothing was heard since
}

// ConfigFileOptions qualify WatchConfig. The functions are called from one goroutine, in order, and the
// next change waits for them; they must not call Close.
type ConfigFileOptions[T any] struct {
	// Default is the value while there has never been a file; nil is to wait for one.
	Default *T
	// OnChange is called with each value, the first too, when Value returns it already; nil is not.
	OnChange func(T)
	// OnError is called when the file cannot be decoded, is not there (any more), or cannot be read; what
	// Value returns stays as it is. nil is not.
	OnError func(error)
}

// WatchConfig waits for the first value of a file, and keeps it up to date until Close. decode is given
// the contents, of which it must keep nothing; contents that it refuses are left, and the value before
// them stays. ctx bounds the wait only. If it ends before, or the file may not be read, there is no
// ConfigFile, and the error says what was in the way last. An ephemeral file is refused in the same way
// (InvalidArgument), since who watches it has it open, and would keep it for ever.
//
// from is a client.Config, for a session of its own, or a *client.Keeper, for the one that others use
// too: a program that watches many files has one Keeper for them. Close leaves a Keeper open.
func WatchConfig[T any](ctx context.Context, from client.Sessions, path string, decode func(contents []byte) (T, error), o ConfigFileOptions[T]) (*ConfigFile[T], error) {
	if _, err := api.ParsePath(path); err != nil {
		return nil, err
	}
	if decode == nil {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "watch", Path: path, Message: "decode is nil; give the function that makes a value of the contents"}
	}
	f := &ConfigFile[T]{path: path, decode: decode, o: o, upkeep: newUpkeep()}
	if err := f.begin(ctx, from, f, "first value", path); err != nil {
		return nil, err
	}
	return f, nil
}

// follow loads the file whenever it has changed, as long as the session lasts.
func (f *ConfigFile[T]) follow(ctx context.Context, c *client.Client) error {
	f.enter(c)
	defer f.enter(nil)
	o := client.OpenOptions{Read: true, Kind: api.File, Events: []api.EventKind{api.EventContentsModified}}
	for s, err := range follow(ctx, c, f.path, o) {
		if err != nil {
			return err
		}
		if !s.due { // else nothing was heard
			f.heard()
		}
		if err := f.load(ctx, s); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// enter takes note of the session; nil is none.
func (f *ConfigFile[T]) enter(c *client.Client) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.c, f.seen = c, false
}

// heard takes note that the file may have changed.
func (f *ConfigFile[T]) heard() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = false
}

// load looks at the file. Its errors are those of reading.
func (f *ConfigFile[T]) load(ctx context.Context, s sight) error {
	if s.Handle == nil {
		f.absent()
		return nil
	}
	text, stat, err := s.Contents(ctx)
	if err != nil {
		return err
	}
	if stat.Ephemeral {
		return keepsAlive("watch", f.path)
	}
	if f.has(stat) || s.due && stat.Content == f.refused {
		return nil
	}
	value, err := f.decode(text)
	if err != nil {
		f.refused = stat.Content
		f.fail(&api.Error{Code: api.InvalidArgument, Op: "decode", Path: f.path, Err: err,
			Message: fmt.Sprintf("generation %d of the file is not used, and the value before it stays", stat.Content)})
		return nil //nolint:nilerr // it was reported, and the watch goes on
	}
	f.set(value, stat)
	return nil
}

// has reports whether the value is of that file; it is the newest then.
func (f *ConfigFile[T]) has(stat api.Stat) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	same := f.loaded && f.stat.Instance == stat.Instance && f.stat.Content == stat.Content
	f.seen = same
	return same
}

// absent takes note that there is no file.
func (f *ConfigFile[T]) absent() {
	f.mu.Lock()
	first := !f.loaded
	byDefault := f.loaded && f.stat.Instance == 0
	f.seen = byDefault
	f.mu.Unlock()
	switch {
	case byDefault:
	case first && f.o.Default != nil:
		f.set(*f.o.Default, api.Stat{})
	default:
		f.fail(&api.Error{Code: api.NotFound, Op: "watch", Path: f.path, Message: "there is no such file; the value before stays, if there was one"})
	}
}

// set makes a value that of the file.
func (f *ConfigFile[T]) set(value T, stat api.Stat) {
	f.mu.Lock()
	first := !f.loaded
	f.value, f.stat, f.loaded, f.seen = value, stat, true, true
	f.mu.Unlock()
	if f.o.OnChange != nil {
		f.o.OnChange(value)
	}
	if first {
		close(f.ready)
	}
}

// fail reports an error. It returns whether there is a value to be served nevertheless.
func (f *ConfigFile[T]) fail(err error) (loaded bool) {
	f.mu.Lock()
	loaded, f.err = f.loaded, err
	f.mu.Unlock()
	if f.o.OnError != nil {
		f.o.OnError(err)
	}
	return loaded
}

// Value returns the newest value that could be decoded. It makes no call.
func (f *ConfigFile[T]) Value() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.value
}

// Fresh reports whether Value is what the file holds, as far as can be known here: the session's lease
// runs, and nothing was heard that has not been loaded. Then a change that is not seen yet was made a
// moment ago; at worst a lease ago, if this process has just been cut off, and then in a session that
// caches (which is the rule) the writer has not been told yet that it was made; or if it was made while
// this program might not read the file. Not fresh is a value
// while the cell is away, after contents that could not be decoded, and after the file was deleted.
func (f *ConfigFile[T]) Fresh() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen && f.c != nil && f.c.Left() > 0
}

// Generation returns that of the contents that the value was decoded from, 0 for the default.
func (f *ConfigFile[T]) Generation() api.Generation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stat.Content
}

// Close ends the session, unless that is a Keeper's, which takes 5 s at most, and returns when no function
// of the options runs any more. Value goes on returning what it did.
func (f *ConfigFile[T]) Close() { f.end() }
