package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Handle is an open node, bound to the node's instance: after a deletion every call fails with HandleClosed,
// even if a node of that name is created again (Chubby §2.6). Its methods may be called from several
// goroutines. Calls block while the session is in jeopardy, and fail with SessionExpired once it is gone.
type Handle struct {
	client       *Client
	path         string
	name         api.Name      // of the node within the cell
	delay        time.Duration // the lock-delay of the OpenOptions
	id           api.HandleID  // set before the first attempt to open the node
	created      bool
	reads        bool            // opened to read
	watches      bool            // opened for events
	openedFor    openKey         // another Open must ask for the same to get this handle after Close
	shareable    bool            // another Open may get this handle after Close
	poisonCtx    context.Context //nolint:containedctx // of the handle: ended by Poison
	endPoisonCtx context.CancelCauseFunc

	// mu guards what follows. Lock.mu, sessionState.mu and the mutexes under it may be taken under mu.
	mu              sync.Mutex
	token           []byte        // names the handle in requests; nil until open
	boundToken      []byte        // the same, bound to a sequencer, or nil
	knownInEpoch    api.Epoch     // of the newest master that knows the handle
	unusable        *api.Error    // why no call can succeed any more, or nil
	closed          bool          // Close was called
	lock            *Lock         // held through this handle, or lost and not yet released
	lost            lostLock      // the last lost lock
	kept            keptLock      // a lock kept after its release
	events          []api.Event   // not yet taken by Next; at most api.MaxEventQueue
	pendingConflict *api.Event    // another client wants the lock: queue this after presenting the handle
	eventsChanged   chan struct{} // closed to wake callers of Next; nil without any
	lockRequested   bool          // Acquire or TryAcquire was called
	callsInFlight   int

	// For the cache; set before Open returns, and constant then.
	opened      api.Stat // of the node when it was opened; of one from the cache, the instance only
	cacheEntry  *entry   // to park the handle with, or nil
	cacheRights uint64   // cache.rightsChanges when the handle was opened
}

// lostLock is a lock that was taken away: no lock of this or a lower generation is held any more.
type lostLock struct {
	generation api.Generation
	reason     string
}

func newHandle(c *Client, p api.Path, opts OpenOptions) *Handle {
	h := &Handle{
		client:  c,
		path:    p.String(),
		name:    p.Name(),
		delay:   opts.LockDelay,
		reads:   opts.Read,
		watches: len(opts.Events) > 0,
		kept:    keptLock{wanted: opts.CacheLock, tellsConflicts: slices.Contains(opts.Events, api.EventConflictingLock)},
	}
	h.openedFor, h.shareable = opts.openKey()
	h.poisonCtx, h.endPoisonCtx = context.WithCancelCause(context.WithoutCancel(c.session.ended))
	return h
}

func holdsLock(h *Handle) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lock != nil && h.lock.ctx.Err() == nil
}

// Path returns the path the handle was opened with.
func (h *Handle) Path() string { return h.path }

// Created reports whether Open created the node.
func (h *Handle) Created() bool { return h.created }

// CreatedStat returns the metadata of the node as Open created it, whatever has changed since; ok is false if
// Open found the node. It makes no call. A write with IfGeneration(stat.Content) overwrites only what Open
// has written.
func (h *Handle) CreatedStat() (stat api.Stat, ok bool) {
	if !h.created {
		return api.Stat{}, false
	}
	return h.opened, true
}

// noteTakenAway records an event that takes away the lock, or the handle and the lock. It returns the lock
// unless its owner has released it, also if the owner knew. It holds mu throughout, so that no goroutine sees
// half: after the end of the lock's context it finds the handle invalid, and at the event the context has ended.
func (h *Handle) noteTakenAway(kind api.EventKind, generation api.Generation, reason api.EndReason, explanation string) *Lock {
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
	if current := cmp.Or(l, h.kept.idle); generation == 0 && current != nil {
		generation = current.seq.Generation
	}
	if generation > h.lost.generation {
		h.lost = lostLock{generation: generation, reason: text}
	}
	if l != nil && (l.seq.Generation > h.lost.generation || l.isReleased()) {
		l = nil
	}
	h.kept.forget(h.lost.generation)
	if l != nil && l.markTaken(text) && h.unusable == nil {
		h.enqueueEvent(api.Event{Kind: api.EventLockLost, Generation: l.seq.Generation, Reason: reason, Explanation: explanation})
	}
	if kind == api.EventHandleInvalid && h.unusable == nil {
		h.enqueueEvent(api.Event{Kind: kind, Reason: reason, Explanation: explanation})
		h.unusable = &api.Error{Code: api.HandleClosed, Message: text + "; open the node again"}
		h.wakeWaiters()
	}
	return l
}

// Close cancels the context of the handle's lock, releases the lock and closes the handle. It never fails for
// an invalid handle or a gone session. If ctx has been cancelled, also before the call, Close has CleanupTime
// more (see CleanupContext). Without an answer it returns Uncertain, and goes on in the background. Other
// pending calls on the handle fail once the cell has closed it.
func (h *Handle) Close(ctx context.Context) error {
	l, first, sound := h.markClosed()
	if l != nil {
		_, _ = l.giveUp("its handle was closed")
		h.clearLock(l)
	}
	if !first {
		return nil
	}
	if sound && h.park() {
		h.client.handles.remove(h)
		return nil
	}
	ctx, cancel := h.client.CleanupContext(ctx)
	defer cancel()
	err := h.client.closeHandle(ctx, h)
	h.client.handles.remove(h)
	var e *api.Error
	if errors.As(err, &e) && isAlreadyClosed(e.Code) {
		return nil
	}
	return err
}

// markClosed makes later calls fail. It returns the held lock, whether this is the first Close, and whether
// calls could succeed before.
func (h *Handle) markClosed() (l *Lock, first, sound bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first, h.closed, h.kept.idle = !h.closed, true, nil // closing the handle releases the lock
	sound = h.unusable == nil
	if first {
		h.unusable = &api.Error{Code: api.HandleClosed, Message: "this handle was closed by its owner; open the node again"}
		h.wakeWaiters()
	}
	return h.lock, first, sound
}

// clearLock makes room for another lock, after the owner has released this one: until then an event must find
// it.
func (h *Handle) clearLock(l *Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lock == l {
		h.lock = nil
	}
}

func isAlreadyClosed(c api.Code) bool {
	switch c {
	case api.HandleClosed, api.BadHandle, api.NotFound, api.SessionExpired:
		return true
	}
	return false
}

func (c *Client) closeHandle(ctx context.Context, h *Handle) error {
	send := closeSender(h.currentToken())
	return c.mutate(ctx, mutation{op: "close", path: h.path, send: send, mustComplete: true,
		settle: func(ctx context.Context, number uint64) {
			_ = c.sendUntilAnswered(ctx, "close", h.path, number, classCleanup, send)
		}})
}

func closeSender(handle []byte) sender {
	return func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		//mutant: _, err := t.data.chubby.CloseHandle(ctx, &chubbypb.CloseHandleRequest{Caller: caller, Mutation: m, Handle: handle})
		_, err := t.control().chubby.CloseHandle(ctx, &chubbypb.CloseHandleRequest{Caller: caller, Mutation: m, Handle: handle})
		return err
	}
}
