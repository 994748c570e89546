package recipe

import (
	"context"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// ConfigFile keeps the decoded newest value of a file, whatever happens to the file, the session or the cell.
//
// It has its own session, or a client.Keeper's, reopened when lost, and two goroutines, which Close waits
// for.
type ConfigFile[T any] struct {
	path   string
	decode func(contents []byte) (T, error)
	o      ConfigFileOptions[T]

	refused api.Generation // of the last contents that could not be decoded; only follow uses it

	upkeep // its mutex guards all below
	value  T
	stat   api.Stat // of the decoded file; zero for the default
	seen   bool     // the value was the file's at the last look, and no event has come since
}

// ConfigFileOptions qualify WatchConfig. One goroutine calls the functions, in order, and the next change
// waits for them. They must not call Close.
type ConfigFileOptions[T any] struct {
	// Default is the value until there is a file; nil waits for a file.
	Default *T
	// OnChange is called with each value, also the first, when Value already returns it. It may be nil.
	OnChange func(T)
	// OnError is called when the file is absent or cannot be decoded or read. Value stays. It may be nil.
	OnError func(error)
}

// WatchConfig waits for the first value of a file, and keeps it up to date until Close. decode must not keep
// the contents; if it rejects them, the value stays. ctx bounds the wait only. If ctx ends first, or the file
// may not be read, the error is the last obstacle. An ephemeral file is InvalidArgument, as the watcher would
// keep it alive.
//
// from is a client.Config, for a session of its own, or a shared *client.Keeper, which Close leaves open.
func WatchConfig[T any](ctx context.Context, from client.Sessions, path string, decode func(contents []byte) (T, error), o ConfigFileOptions[T]) (*ConfigFile[T], error) {
	if _, err := api.ParsePath(path); err != nil {
		return nil, err
	}
	if decode == nil {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "watch", Path: path, Message: "decode is nil; give the function that makes a value of the contents"}
	}
	f := &ConfigFile[T]{path: path, decode: decode, o: o, upkeep: newUpkeep(o.OnError)}
	if err := f.begin(ctx, from, f.follow, "first value", path); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *ConfigFile[T]) follow(ctx context.Context, c *client.Client) error {
	f.heard()
	f.enter(c)
	defer f.enter(nil)
	o := client.OpenOptions{Read: true, Kind: api.File, Events: []api.EventKind{api.EventContentsModified}}
	for s, err := range follow(ctx, c, f.path, o) {
		if err != nil {
			return err
		}
		if !s.due { // else no event has come
			f.heard()
		}
		if err := f.load(ctx, s); err != nil && !hold.Gone(err) {
			return err
		}
	}
	return nil
}

// heard records that the file may have changed.
func (f *ConfigFile[T]) heard() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = false
}

// load looks at the file. Its errors are those of reading. The default has the metadata of an absent file.
func (f *ConfigFile[T]) load(ctx context.Context, s sight) (err error) {
	var text []byte
	var stat api.Stat
	if s.Handle != nil {
		if text, stat, err = s.Contents(ctx); err != nil {
			return err
		}
		if stat.Ephemeral {
			return keepsAlive("watch", f.path)
		}
	}
	f.mu.Lock()
	loaded := f.loaded
	f.seen = loaded && f.stat.Instance == stat.Instance && f.stat.Content == stat.Content
	same := f.seen
	f.mu.Unlock()
	switch {
	case same:
	case s.Handle == nil && !loaded && f.o.Default != nil:
		f.set(*f.o.Default, stat)
	case s.Handle == nil:
		f.fail(&api.Error{Code: api.NotFound, Op: "watch", Path: f.path, Message: "there is no such file; the value before stays, if there was one"})
	case s.due && stat.Content == f.refused:
	default:
		value, err := f.decode(text)
		if err == nil {
			f.set(value, stat)
			break
		}
		f.refused = stat.Content
		f.fail(&api.Error{Code: api.InvalidArgument, Op: "decode", Path: f.path, Err: err,
			Message: fmt.Sprintf("generation %d of the file is not used, and the value before it stays", stat.Content)})
	}
	return nil
}

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

// Value returns the newest decoded value. It makes no call.
func (f *ConfigFile[T]) Value() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.value
}

// Fresh reports whether Value is what the file holds, to this process's knowledge: the session's lease runs,
// and every event has been loaded. An unseen change is a moment old, or at most a lease if this process was
// just cut off; in a session that caches (the default), its writer then still waits. Or this program could
// not read the file at that time. A value is not fresh while the cell is away, after contents that could not
// be decoded, and after a deletion.
func (f *ConfigFile[T]) Fresh() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen && f.c != nil && f.c.Left() > 0
}

// Generation returns that of the decoded contents, 0 for the default.
func (f *ConfigFile[T]) Generation() api.Generation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stat.Content
}

// Close ends the session, unless it is a Keeper's, in at most 5 s. It returns when the functions of the
// options no longer run. Value keeps its result.
func (f *ConfigFile[T]) Close() { f.end() }
