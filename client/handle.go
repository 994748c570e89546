package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Handle is an open node. It is bound to the node's instance: once the node is
// deleted, every call fails with HandleClosed, even if the name is created
// again (Chubby §2.6). Its methods may be called from several goroutines. Every
// call blocks while the session is in jeopardy, and fails with SessionExpired
// once it is gone.
type Handle struct {
	client  *Client
	path    string
	delay   time.Duration // the lock-delay it was opened with
	id      api.HandleID  // set before the first attempt to open it
	token   []byte        // as the cell names it to us
	created bool

	mu     sync.Mutex     // guards what follows
	broken *api.Error     // why no call can succeed any more
	closed bool           // by Close
	lock   *Lock          // held through this handle, or lost and not yet released
	lost   api.Generation // no lock of this or a lower generation is held any more
	reason string         // why it was lost
}

// handles finds those who are concerned by an event.
type handles struct {
	mu   sync.Mutex // guards byID
	byID map[api.HandleID]*Handle
}

func newHandles() *handles { return &handles{byID: map[api.HandleID]*Handle{}} }

func (t *handles) get(id api.HandleID) *Handle {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

func (t *handles) put(h *Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[h.id] = h
}

func (t *handles) remove(h *Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, h.id)
}

// Path returns the path the handle was opened with.
func (h *Handle) Path() string { return h.path }

// Created reports whether Open created the node.
func (h *Handle) Created() bool { return h.created }

// usable returns why no call can succeed, without asking.
func (h *Handle) usable(op string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil {
		return about(h.broken, op, h.path)
	}
	return nil
}

// told takes note of an event about the handle. It returns the lock that it
// takes away, if that was held.
func (h *Handle) told(kind api.EventKind, generation api.Generation, reason api.EndReason, explanation string) *Lock {
	text := fmt.Sprintf("%v (%v)", kind, reason)
	if explanation != "" {
		text += ": " + explanation
	}
	h.mu.Lock()
	l := h.lock
	if kind == api.EventHandleInvalid {
		generation = api.MaxGeneration
		if h.broken == nil {
			h.broken = &api.Error{Code: api.HandleClosed, Message: text + "; open the node again"}
		}
	}
	if generation == 0 && l != nil {
		generation = l.seq.Generation
	}
	if generation > h.lost {
		h.lost, h.reason = generation, text
	}
	if l != nil && l.seq.Generation > h.lost {
		l = nil
	}
	h.mu.Unlock()
	if l == nil || !l.lose(text) {
		return nil
	}
	return l
}

// Stat returns the node's metadata.
func (h *Handle) Stat(ctx context.Context) (api.Stat, error) {
	var stat api.Stat
	err := h.read(ctx, "stat", func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
		reply, err := t.chubby.GetStat(ctx, &chubbypb.GetStatRequest{Caller: caller, Handle: h.token})
		if err == nil {
			stat, err = reply.GetStat().Stat()
		}
		return err
	})
	return stat, err
}

// Contents returns the whole of a file with its metadata, atomically.
func (h *Handle) Contents(ctx context.Context) ([]byte, api.Stat, error) {
	var stat api.Stat
	var contents []byte
	err := h.read(ctx, "read", func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
		reply, err := t.chubby.GetContentsAndStat(ctx, &chubbypb.GetContentsAndStatRequest{Caller: caller, Handle: h.token})
		if err == nil {
			contents = reply.GetContents()
			stat, err = reply.GetStat().Stat()
		}
		return err
	})
	return contents, stat, err
}

// ReadDir returns the metadata of a directory's children, by name. Large
// directories take several calls, between which children may come and go.
func (h *Handle) ReadDir(ctx context.Context) ([]api.Stat, error) {
	var list []api.Stat
	for {
		var page []api.Stat
		var more bool
		err := h.read(ctx, "list", func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
			request := &chubbypb.ReadDirRequest{Caller: caller, Handle: h.token}
			if len(list) > 0 {
				request.After = list[len(list)-1].Path.Base()
			}
			reply, err := t.chubby.ReadDir(ctx, request)
			if err != nil {
				return err
			}
			page, more = nil, reply.GetMore()
			for _, child := range reply.GetChildren() {
				stat, err := child.Stat()
				if err != nil {
					return err
				}
				page = append(page, stat)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		list = append(list, page...)
		if !more || len(page) == 0 {
			return list, nil
		}
	}
}

func (h *Handle) read(ctx context.Context, op string, attempt func(ctx context.Context, t *target, caller *chubbypb.Caller) error) error {
	if err := h.usable(op); err != nil {
		return err
	}
	return h.client.read(ctx, op, h.path, attempt)
}

// WriteOption qualifies SetContents and SetACL.
type WriteOption func(*writeOptions)

type writeOptions struct{ ifGeneration *uint64 }

// IfGeneration makes a write conditional: the contents, or the ACL names, must
// still be at that generation, else GenerationMismatch (Chubby §2.6).
func IfGeneration(g api.Generation) WriteOption {
	return func(o *writeOptions) { n := uint64(g); o.ifGeneration = &n }
}

func collect(options []WriteOption) writeOptions {
	var o writeOptions
	for _, option := range options {
		option(&o)
	}
	return o
}

// SetContents replaces the whole of a file. If ctx ends before an answer the
// error is Uncertain: the write may have happened, but will not happen later
// than any later write of this client.
func (h *Handle) SetContents(ctx context.Context, contents []byte, options ...WriteOption) (api.Stat, error) {
	if err := contentsFault(contents, "write", h.path); err != nil {
		return api.Stat{}, err
	}
	var stat api.Stat
	o := collect(options)
	err := h.mutate(ctx, "write", func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		reply, err := t.chubby.SetContents(ctx, &chubbypb.SetContentsRequest{
			Caller: caller, Mutation: m, Handle: h.token, Contents: contents, IfGeneration: o.ifGeneration,
		})
		if err == nil {
			stat, err = reply.GetStat().Stat()
		}
		return err
	})
	return stat, err
}

func contentsFault(contents []byte, op, path string) error {
	if len(contents) <= api.MaxContents {
		return nil
	}
	return &api.Error{Code: api.TooLarge, Op: op, Path: path,
		Message: fmt.Sprintf("the contents have %d bytes; a file holds at most %d, so store a pointer to where the data is", len(contents), api.MaxContents)}
}

// SetACL replaces the ACL names of a node; empty names stay as they are in the
// parent. The handle must have been opened with ChangeACL.
func (h *Handle) SetACL(ctx context.Context, acl api.ACL, options ...WriteOption) (api.Stat, error) {
	var stat api.Stat
	o := collect(options)
	err := h.mutate(ctx, "set ACL", func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		reply, err := t.chubby.SetACL(ctx, &chubbypb.SetACLRequest{
			Caller: caller, Mutation: m, Handle: h.token, Acl: wireACL(acl), IfGeneration: o.ifGeneration,
		})
		if err == nil {
			stat, err = reply.GetStat().Stat()
		}
		return err
	})
	return stat, err
}

func wireACL(a api.ACL) *chubbypb.ACL {
	return &chubbypb.ACL{Read: a.Read, Write: a.Write, Change: a.Change}
}

// Delete deletes the node: NotEmpty if it has children, LockHeld if another
// holds its lock. The handle remains to be closed.
func (h *Handle) Delete(ctx context.Context) error {
	return h.mutate(ctx, "delete", func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		_, err := t.chubby.Delete(ctx, &chubbypb.DeleteRequest{Caller: caller, Mutation: m, Handle: h.token})
		return err
	})
}

func (h *Handle) mutate(ctx context.Context, op string, send sender) error {
	if err := h.usable(op); err != nil {
		return err
	}
	return h.client.mutate(ctx, mutation{op: op, path: h.path, send: send})
}

// Close closes the handle and releases the lock held through it; the lock's
// context is cancelled first. It never fails for a handle that is invalid
// already, or whose session is gone. If ctx ends before an answer it returns
// Uncertain, and the handle is closed in the background.
func (h *Handle) Close(ctx context.Context) error {
	l, first := h.shut()
	if l != nil {
		_, _ = l.drop("its handle was closed")
	}
	if !first {
		return nil
	}
	err := h.client.close(ctx, h)
	h.client.handles.remove(h)
	var e *api.Error
	if errors.As(err, &e) && isGone(e.Code) {
		return nil
	}
	return err
}

// shut makes every later call fail. It returns the lock that was held, and
// whether this was the first call of Close.
func (h *Handle) shut() (l *Lock, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first, h.closed = !h.closed, true
	if first {
		h.broken = &api.Error{Code: api.HandleClosed, Message: "this handle was closed by its owner; open the node again"}
	}
	l, h.lock = h.lock, nil
	return l, first
}

// isGone reports whether a refusal to close a handle means that there is
// nothing to close.
func isGone(c api.Code) bool {
	switch c {
	case api.HandleClosed, api.BadHandle, api.NotFound, api.SessionExpired:
		return true
	}
	return false
}

// close closes a handle at the cell, and goes on to do so if ctx ends.
func (c *Client) close(ctx context.Context, h *Handle) error {
	send := closer(h.token)
	return c.mutate(ctx, mutation{op: "close", path: h.path, send: send,
		settle: func(ctx context.Context, number uint64) { _ = c.insist(ctx, "close", h.path, number, send) }})
}

func closer(handle []byte) sender {
	return func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		_, err := t.chubby.Close(ctx, &chubbypb.CloseRequest{Caller: caller, Mutation: m, Handle: handle})
		return err
	}
}
