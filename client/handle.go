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
	name    api.Name      // the same within the cell
	delay   time.Duration // the lock-delay it was opened with
	id      api.HandleID  // set before the first attempt to open it
	created bool
	reads   bool            // it was opened to read
	watches bool            // it was opened for events
	asked   openKey         // what it was opened for,
	shared  bool            // which another Open may share
	poison  context.Context //nolint:containedctx // it is the handle's, not a call's: ended by Poison
	spoil   context.CancelCauseFunc

	mu        sync.Mutex     // guards what follows
	token     []byte         // as the cell names it to us; nil until it is open
	guarded   []byte         // the same, bound to a sequencer; nil if it is not
	presented api.Epoch      // of the newest master that knows the handle
	broken    *api.Error     // why no call can succeed any more
	closed    bool           // by Close
	lock      *Lock          // held through this handle, or lost and not yet released
	lost      api.Generation // no lock of this or a lower generation is held any more
	reason    string         // why it was lost
	queue     []api.Event    // not yet taken by Next; see push for its bound
	wanted    *api.Event     // that another wants the lock, to be told when the handle has been presented
	news      chan struct{}  // closed when there is something for those who wait in Next; nil when nobody does
	locked    bool           // a lock was asked for through it
	running   int            // calls on it that have begun and not ended

	// For the cache: what the handle may be found by, and kept with when it is closed.
	instance api.Generation // of the node; 0 until it is open
	from     *entry         // nil if the handle is not to be used again
	rights   uint64         // of the cache, when it was opened
}

func newHandle(c *Client, p api.Path, opts OpenOptions) *Handle {
	h := &Handle{client: c, path: p.String(), name: p.Name(), delay: opts.LockDelay, reads: opts.Read, watches: len(opts.Events) > 0}
	h.asked, h.shared = opts.openKey()
	h.poison, h.spoil = context.WithCancelCause(context.WithoutCancel(c.session.ended))
	return h
}

// holds reports whether a lock is held through the handle, as far as is known.
func (h *Handle) holds() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lock != nil && h.lock.ctx.Err() == nil
}

// Path returns the path the handle was opened with.
func (h *Handle) Path() string { return h.path }

// Created reports whether Open created the node.
func (h *Handle) Created() bool { return h.created }

// told takes note of an event that takes away the lock, or the handle with it.
// It returns the lock, if its owner has not let go of it, whether or not he
// knows already. All of it is one step to whoever looks: who sees the lock's
// context end finds the handle invalid, and who reads the event finds the
// context ended.
func (h *Handle) told(kind api.EventKind, generation api.Generation, reason api.EndReason, explanation string) *Lock {
	text := fmt.Sprintf("%v (%v)", kind, reason)
	if explanation != "" {
		text += ": " + explanation
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lock
	if kind == api.EventHandleInvalid {
		generation = api.MaxGeneration
	}
	if generation == 0 && l != nil {
		generation = l.seq.Generation
	}
	if generation > h.lost {
		h.lost, h.reason = generation, text
	}
	if l != nil && (l.seq.Generation > h.lost || l.isLet()) {
		l = nil
	}
	if l != nil && l.lose(text) && h.broken == nil {
		h.enqueue(api.Event{Kind: api.EventLockLost, Generation: l.seq.Generation, Reason: reason, Explanation: explanation})
	}
	if kind == api.EventHandleInvalid && h.broken == nil {
		h.enqueue(api.Event{Kind: kind, Reason: reason, Explanation: explanation})
		h.broken = &api.Error{Code: api.HandleClosed, Message: text + "; open the node again"}
		h.wake()
	}
	return l
}

// Close closes the handle and releases the lock held through it; the lock's
// context is cancelled first. It never fails for a handle that is invalid
// already, or whose session is gone. If ctx has been cancelled, also before the
// call, it has PartingTime more (see Parting). If there is no answer by then it
// returns Uncertain, and the handle is closed in the background. Other calls on the
// handle that are under way fail when the cell has closed it.
func (h *Handle) Close(ctx context.Context) error {
	l, first, sound := h.shut()
	if l != nil {
		_, _ = l.drop("its handle was closed")
		h.part(l)
	}
	if !first {
		return nil
	}
	if sound && h.spareIt() {
		h.client.handles.remove(h)
		return nil
	}
	ctx, cancel := h.client.Parting(ctx)
	defer cancel()
	err := h.client.close(ctx, h)
	h.client.handles.remove(h)
	var e *api.Error
	if errors.As(err, &e) && isGone(e.Code) {
		return nil
	}
	return err
}

// shut makes every later call fail. It returns the lock that was held, whether
// this was the first call of Close, and whether calls could succeed before.
func (h *Handle) shut() (l *Lock, first, sound bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first, h.closed = !h.closed, true
	sound = h.broken == nil
	if first {
		h.broken = &api.Error{Code: api.HandleClosed, Message: "this handle was closed by its owner; open the node again"}
		h.wake()
	}
	return h.lock, first, sound
}

// part makes room for another lock. It comes after the owner has let go: until
// then an event finds whom it concerns.
func (h *Handle) part(l *Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lock == l {
		h.lock = nil
	}
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
	send := closer(h.key())
	return c.mutate(ctx, mutation{op: "close", path: h.path, send: send, mustComplete: true,
		settle: func(ctx context.Context, number uint64) {
			_ = c.insist(ctx, "close", h.path, number, classCleanup, send)
		}})
}

func closer(handle []byte) sender {
	return func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		_, err := t.control().chubby.Close(ctx, &chubbypb.CloseRequest{Caller: caller, Mutation: m, Handle: handle})
		return err
	}
}
