package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chubbylock/chubby/api"
)

// The calls of this file name a node by its path: each opens the node, makes one call, and closes the handle.
// It opens a node again that was deleted and recreated between.

// visit opens a node, calls use with the handle, and closes it; and again, if the node was deleted after the
// open.
func visit(ctx context.Context, c *Client, path string, o OpenOptions, use func(h *Handle) error) error {
	for opened := 1; ; opened++ {
		h, err := c.Open(ctx, path, o)
		if o.Create == Existing && errors.Is(err, api.Exists) {
			return &api.Error{Code: api.NotFound, Op: "open", Path: path, Err: err, Message: "the node is being removed"}
		}
		if err != nil {
			return err
		}
		err = use(h)
		_ = h.Close(ctx) // without an answer, it is closed in the background
		if !errors.Is(err, api.HandleClosed) || opened == maxReopen {
			return err
		}
	}
}

// Get returns a whole file with its metadata, as Handle.Contents does. NotFound says that the file is absent,
// IsDirectory that it is a directory. Cached data needs no call. An uncached file, or a session with
// Config.NoCache, takes three calls: for repeated reads keep a handle there. To wait for changes, use
// recipe.Watch.
func (c *Client) Get(ctx context.Context, path string) ([]byte, api.Stat, error) {
	p, err := c.cell.parsePath("get", path)
	if err != nil {
		return nil, api.Stat{}, err
	}
	if kept, ok := readCache(ctx, c, p.Name(), 0, wantContents); ok {
		return bytes.Clone(kept.contents), *kept.stat, nil
	}
	var contents []byte
	var stat api.Stat
	err = visit(ctx, c, path, OpenOptions{Read: true, Kind: api.File}, func(h *Handle) (err error) {
		contents, stat, err = h.Contents(ctx)
		return err
	})
	return contents, stat, err
}

// List returns the metadata of a directory's children, by name, as Handle.ReadDir does. NotFound says that
// the directory is absent, NotDirectory that it is a file. Cached data needs no call.
func (c *Client) List(ctx context.Context, path string) ([]api.Stat, error) {
	p, err := c.cell.parsePath("list", path)
	if err != nil {
		return nil, err
	}
	if kept, ok := readCache(ctx, c, p.Name(), 0, wantChildren); ok {
		return slices.Clone(kept.children), nil
	}
	var list []api.Stat
	err = visit(ctx, c, path, OpenOptions{Read: true, Kind: api.Directory}, func(h *Handle) (err error) {
		list, err = h.ReadDir(ctx)
		return err
	})
	return list, err
}

// Stat returns the metadata of a node, as Handle.Stat does. NotFound says that the node is absent. It needs
// the right to read the node. Cached data needs no call.
func (c *Client) Stat(ctx context.Context, path string) (api.Stat, error) {
	p, err := c.cell.parsePath("stat", path)
	if err != nil {
		return api.Stat{}, err
	}
	if kept, ok := readCache(ctx, c, p.Name(), 0, wantStat); ok {
		return *kept.stat, nil
	}
	var stat api.Stat
	err = visit(ctx, c, path, OpenOptions{Read: true}, func(h *Handle) (err error) {
		stat, err = h.Stat(ctx)
		return err
	})
	return stat, err
}

// Put replaces the whole contents of a file, and returns its new metadata. It creates an absent file with
// these contents at once, in an existing directory (MkdirAll), else it is NotFound. Exists says that an
// ephemeral file of that name is being removed.
//
// With an option it is conditional:
//
//   - IfGeneration(g): the contents must still be at the generation g, that is Stat.Content of Get's result;
//     0, which Get returns with NotFound, stands for an absent file. Otherwise it is GenerationMismatch, and
//     nothing is written.
//   - IfSequencer(s): the sequencer must be valid, otherwise it is BadSequencer, and nothing is written. The
//     file must exist, otherwise it is NotFound.
//   - Both: each must hold. IfGeneration(0) and IfSequencer(s) create the file; that is the Txn with Create,
//     and has its errors.
//
// If ctx ends before an answer, the error is Uncertain: the write may have happened, but will not happen
// after any later change of this client.
func (c *Client) Put(ctx context.Context, path string, contents []byte, options ...WriteOption) (api.Stat, error) {
	o, err := writeOptionsOf("put", path, options)
	if err != nil {
		return api.Stat{}, err
	}
	opening := OpenOptions{Write: true, Create: File, Kind: api.File, Contents: contents}
	switch absent := o.ifGeneration != nil && *o.ifGeneration == 0; {
	case absent && o.ifSequencer != "": // an Open has no room for conditions
		stats, err := c.Txn().Create(path, contents, options...).Commit(ctx)
		if err != nil {
			return api.Stat{}, err
		}
		return stats[0], nil
	case absent:
		opening.Create = NewFile
	case len(options) > 0:
		opening.Create, opening.Contents = Existing, nil
		if err := checkContents(contents, "put", path); err != nil {
			return api.Stat{}, err
		}
	}
	var stat api.Stat
	err = visit(ctx, c, path, opening, func(h *Handle) (err error) {
		var created bool
		if stat, created = h.CreatedStat(); created {
			return nil
		}
		stat, err = h.SetContents(ctx, contents, options...)
		return err
	})
	if o.ifGeneration != nil && (errors.Is(err, api.NotFound) || errors.Is(err, api.Exists)) {
		err = &api.Error{Code: api.GenerationMismatch, Op: "put", Path: path, Err: err,
			Message: fmt.Sprintf("the file is not at generation %d any more; get it again", *o.ifGeneration)}
	}
	return stat, err
}

// Delete deletes a node, as Handle.Delete does, with the same options. NotFound says that it is absent.
func (c *Client) Delete(ctx context.Context, path string, options ...WriteOption) error {
	return visit(ctx, c, path, OpenOptions{Write: true}, func(h *Handle) error { return h.Delete(ctx, options...) })
}

// MkdirAll creates a directory, and absent ones above it. Nil means that the directory existed in the end,
// created by any client. If others delete directories meanwhile, it creates them again, and gives up after
// ten rounds with NotFound. NotDirectory says that one of the names is a file's. It needs the right to read
// an existing directory, and to write one in which it creates another.
func (c *Client) MkdirAll(ctx context.Context, path string) error {
	p, err := c.cell.parsePath("make directories", path)
	if err != nil {
		return err
	}
	for round := 1; ; round++ {
		err := makeDirectories(ctx, c, p)
		if !errors.Is(err, api.NotFound) || round == maxReopen {
			return err
		}
	}
}

// makeDirectories is one round of MkdirAll. It begins below: often nothing is absent, and needs no rights
// above.
func makeDirectories(ctx context.Context, c *Client, p api.Path) error {
	err := makeDirectory(ctx, c, p)
	if !errors.Is(err, api.NotFound) || p.IsRoot() {
		return err
	}
	if err := makeDirectories(ctx, c, p.Parent()); err != nil {
		return err
	}
	return makeDirectory(ctx, c, p)
}

func makeDirectory(ctx context.Context, c *Client, p api.Path) error {
	return visit(ctx, c, p.String(), OpenOptions{Read: true, Create: Directory}, func(*Handle) error { return nil })
}

const removePage = 100

// RemoveAll deletes a node and everything below it. Nil means that the node was absent in the end, or from
// the start. It is no transaction: others see a part of it, and its deletions remain if it fails later. It
// also deletes nodes created meanwhile, and gives up after ten rounds with NotEmpty. It skips files that it
// cannot delete, as others hold their locks (LockHeld) or for want of rights (PermissionDenied), and returns
// the first error. The root of a cell is InvalidArgument.
//
// It needs the right to write everything and to read directories. It takes some three calls for each node, in
// turn. For each directory on its way, at most api.MaxDepth, it keeps a hundred names and a handle.
func (c *Client) RemoveAll(ctx context.Context, path string) error {
	p, err := c.cell.parsePath("remove all", path)
	if err != nil {
		return err
	}
	if p.IsRoot() {
		return &api.Error{Code: api.InvalidArgument, Op: "remove all", Path: path, Message: "the root of a cell stays, and its ACLs are below it; name what is to be removed"}
	}
	return removeAll(ctx, c, path)
}

func removeAll(ctx context.Context, c *Client, path string) error {
	for round := 1; ; round++ {
		err := c.Delete(ctx, path)
		switch {
		case errors.Is(err, api.NotFound):
			return nil
		case !errors.Is(err, api.NotEmpty) || round > maxReopen:
			return err
		}
		if err := removeBelow(ctx, c, path); err != nil {
			return err
		}
	}
}

func removeBelow(ctx context.Context, c *Client, dir string) error {
	var first, fatal error // of those that stay; of a final failure, which visit must not retry
	err := visit(ctx, c, dir, OpenOptions{Read: true, Kind: api.Directory}, func(h *Handle) error {
		for after, more := "", true; more; {
			var page []api.Stat
			var err error
			if page, more, err = h.ReadDirPage(ctx, after, removePage); err != nil {
				return err
			}
			for _, child := range page {
				after = child.Path.Base()
				switch err := removeAll(ctx, c, dir+"/"+after); {
				case err != nil && !isOfOneNode(err):
					fatal = err
					return nil
				case first == nil:
					first = err
				}
			}
		}
		return nil
	})
	if errors.Is(err, api.NotFound) || errors.Is(err, api.NotDirectory) { // deleted, and perhaps replaced by a file
		err = nil
	}
	return cmp.Or(fatal, err, first)
}

// isOfOneNode reports whether an error of Delete concerns that node only.
func isOfOneNode(err error) bool {
	return errors.Is(err, api.LockHeld) || errors.Is(err, api.PermissionDenied) || errors.Is(err, api.NotEmpty)
}
