package chubbyvault

import (
	"context"
	"errors"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/hashicorp/vault/sdk/physical"
)

// writer is how entries' files are opened and written, fenced or not.
type writer struct {
	open       func(ctx context.Context, file string, o client.OpenOptions) (*client.Handle, error) // by the path relative to the data
	conditions []client.WriteOption
}

// fence makes writes depend on the lock of the active node: a file is created through a handle of the
// directory of the data that is bound to the lock's sequencer, and written and deleted under the
// condition that the sequencer is valid. The cell checks both as it applies the change.
type fence struct {
	seq  sequencer.Sequencer
	lost func() error // why the lock may not be relied on any more, by the local clock: it spares calls, and nothing depends on it

	mu      sync.Mutex     // guards what follows; no call is made while it is held
	root    *client.Handle // bound to seq
	session api.SessionID  // of root
}

// RegisterActiveNodeLock makes all further writes of this backend depend on the lock: the cell refuses
// them with BadSequencer once it is not held any more, without a gap between the check and the write.
// Excepted are writes whose context is made by physical.UnfencedWriteCtx. The lock must be one of LockWith
// that Lock has acquired; if it was lost or released since, writes are refused until another lock is
// registered. Otherwise the error is InvalidArgument.
func (b *Backend) RegisterActiveNodeLock(l physical.Lock) error {
	own, ok := l.(*Lock)
	if !ok {
		return api.Errorf(api.InvalidArgument, "the lock is a %T; register one of LockWith of package chubbyvault", l)
	}
	own.mu.Lock()
	last := own.last
	own.mu.Unlock()
	if last == nil {
		return &api.Error{Code: api.InvalidArgument, Op: "register the active node's lock", Path: own.path, Message: "it was never acquired; call Lock first"}
	}
	b.mu.Lock()
	before := b.fence
	b.fence = &fence{seq: last.Sequencer(), lost: last.Err}
	b.mu.Unlock()
	before.close()
	return nil
}

// writer returns how this call is to write.
func (b *Backend) writer(ctx context.Context, c *client.Client) (writer, error) {
	b.mu.Lock()
	f := b.fence
	b.mu.Unlock()
	if f == nil || physical.IsUnfencedWrite(ctx) {
		return writer{open: func(ctx context.Context, file string, o client.OpenOptions) (*client.Handle, error) {
			return c.Open(ctx, b.data()+"/"+file, o)
		}}, nil
	}
	if why := f.lost(); why != nil {
		return writer{}, &api.Error{Code: api.BadSequencer, Op: "write", Path: b.data(), Err: why,
			Message: "this node is not the active one any more; nothing was written"}
	}
	root, err := f.directory(ctx, c, b.data())
	return writer{open: func(ctx context.Context, file string, o client.OpenOptions) (*client.Handle, error) {
		return root.Open(ctx, file, o)
	}, conditions: []client.WriteOption{client.IfSequencer(f.seq)}}, err
}

// directory returns the bound handle of the directory, in that session.
func (f *fence) directory(ctx context.Context, c *client.Client, path string) (*client.Handle, error) {
	f.mu.Lock()
	root, session := f.root, f.session
	f.mu.Unlock()
	if root != nil && session == c.Session() {
		return root, nil
	}
	root, err := c.Open(ctx, path, client.OpenOptions{Read: true, Kind: api.Directory})
	if errors.Is(err, api.NotFound) {
		if err := c.MkdirAll(ctx, path); err != nil {
			return nil, err
		}
		root, err = c.Open(ctx, path, client.OpenOptions{Read: true, Kind: api.Directory})
	}
	if err != nil {
		return nil, err
	}
	if err := root.SetSequencer(ctx, f.seq); err != nil {
		_ = root.Close(ctx)
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.root != nil && f.session == c.Session() { // another call was faster; what it left is closed with the session
		return f.root, nil
	}
	f.root, f.session = root, c.Session()
	return root, nil
}

// close closes the handle, unless it ended with its session. Writes that are under way fail.
func (f *fence) close() {
	if f == nil {
		return
	}
	f.mu.Lock()
	root := f.root
	f.root = nil
	f.mu.Unlock()
	if root == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), client.CleanupTime)
	defer cancel()
	_ = root.Close(ctx) // in the background then
}
