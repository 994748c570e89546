package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Handle is an open node, bound to the node's instance: after a deletion every call fails with HandleClosed,
// even if a node of that name is created again (Chubby §2.6). Its methods may be called from several
// goroutines. Calls block while the session is in jeopardy, and fail with SessionExpired once it is gone.
type Handle struct {
	client       *Client
	path         string
	name         api.Name     // of the node within the cell
	openedFor    openKey      // another Open must ask for the same to get this handle after Close
	id           api.HandleID // set before the first attempt to open the node
	created      bool
	poisonCtx    context.Context //nolint:containedctx // of the handle: ended by Poison
	endPoisonCtx context.CancelCauseFunc

	// mu guards what follows. Lock.mu, sessionState.mu and the mutexes under it may be taken under mu.
	mu            sync.Mutex
	token         []byte     // names the handle in requests; nil until open
	boundToken    []byte     // the same, bound to a sequencer, or nil
	knownInEpoch  api.Epoch  // of the newest master that knows the handle
	unusable      *api.Error // why no call can succeed any more, or nil
	closed        bool       // Close was called
	lock          handleLock
	queue         eventQueue
	callsInFlight int

	// For the cache; set before Open returns, and constant then.
	opened      api.Stat // of the node when it was opened; of one from the cache, the instance only
	cacheEntry  *entry   // to park the handle with, or nil
	cacheRights uint64   // cache.rightsChanges when the handle was opened
}

func newHandle(c *Client, p api.Path, opts OpenOptions) *Handle {
	h := &Handle{client: c, path: p.String(), name: p.Name(), openedFor: opts.openKey()}
	h.poisonCtx, h.endPoisonCtx = context.WithCancelCause(context.WithoutCancel(c.session.ended))
	return h
}

func holdsLock(h *Handle) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lock.owned != nil && h.lock.owned.ctx.Err() == nil
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
	l, k := h.lock.owned, &h.lock
	if kind == api.EventHandleInvalid {
		generation = api.MaxGeneration
	}
	if current := cmp.Or(l, k.idle); generation == 0 && current != nil {
		generation = current.seq.Generation
	}
	if generation > k.lostGeneration {
		k.lostGeneration, k.lostReason = generation, text
	}
	if l != nil && (l.seq.Generation > k.lostGeneration || l.isReleased()) {
		l = nil
	}
	if k.idle != nil && k.idle.seq.Generation <= k.lostGeneration {
		k.idle = nil
	}
	if l != nil && l.markTaken(text) && h.unusable == nil {
		h.enqueueEvent(api.Event{Kind: api.EventLockLost, Generation: l.seq.Generation, Reason: reason, Explanation: explanation})
	}
	if kind == api.EventHandleInvalid && h.unusable == nil {
		h.enqueueEvent(api.Event{Kind: kind, Reason: reason, Explanation: explanation})
		h.unusable = &api.Error{Code: api.HandleClosed, Message: text + "; open the node again"}
		h.queue.wakeNext()
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
	err := h.client.mutate(ctx, mutation{op: "close", path: h.path, send: closeSender(h.currentToken()), mustComplete: true})
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
	first, h.closed, h.lock.idle = !h.closed, true, nil // closing the handle releases the lock
	sound = h.unusable == nil
	if first {
		h.unusable = &api.Error{Code: api.HandleClosed, Message: "this handle was closed by its owner; open the node again"}
		h.queue.wakeNext()
	}
	return h.lock.owned, first, sound
}

// clearLock makes room for another lock, after the owner has released this one: until then an event must find
// it.
func (h *Handle) clearLock(l *Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lock.owned == l {
		h.lock.owned = nil
	}
}

func isAlreadyClosed(c api.Code) bool {
	return slices.Contains([]api.Code{api.HandleClosed, api.BadHandle, api.NotFound, api.SessionExpired}, c)
}

func closeSender(handle []byte) sender {
	return func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		//mutant: _, err := t.data.chubby.CloseHandle(ctx, &chubbypb.CloseHandleRequest{Caller: caller, Mutation: m, Handle: handle})
		_, err := t.control().chubby.CloseHandle(ctx, &chubbypb.CloseHandleRequest{Caller: caller, Mutation: m, Handle: handle})
		return err
	}
}

// handleTable has the handles of a session by id, as events name them.
type handleTable struct {
	mu   sync.Mutex // guards byID; take no mutex under it
	byID map[api.HandleID]*Handle
}

func newHandleTable() *handleTable { return &handleTable{byID: map[api.HandleID]*Handle{}} }

func (t *handleTable) get(id api.HandleID) *Handle {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

func (t *handleTable) put(h *Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[h.id] = h
}

// remove removes a handle, unless a later Open got the same one of the cell: events are for that one then.
func (t *handleTable) remove(h *Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[h.id] == h {
		delete(t.byID, h.id)
	}
}

func (t *handleTable) all() []*Handle {
	t.mu.Lock()
	list := slices.Collect(maps.Values(t.byID))
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b *Handle) int { return cmp.Compare(a.id, b.id) })
	return list
}

func (t *handleTable) count() (handles, events int) {
	for _, h := range t.all() {
		handles++
		h.mu.Lock()
		events += len(h.queue.waiting)
		h.mu.Unlock()
	}
	return handles, events
}

// unreleasedLocks returns the locks not released by their owners, lost ones too.
func (t *handleTable) unreleasedLocks() []*Lock {
	var list []*Lock
	for _, h := range t.all() {
		h.mu.Lock()
		l := h.lock.owned
		h.mu.Unlock()
		if l != nil && !l.isReleased() {
			list = append(list, l)
		}
	}
	return list
}

func (t *handleTable) endedUnreleasedLocks() []*Lock {
	return slices.DeleteFunc(t.unreleasedLocks(), func(l *Lock) bool { return l.ctx.Err() == nil })
}

// Poison makes every operation on the handle fail at once, with HandleClosed that wraps Poisoned: pending
// ones, in any goroutine, and later ones. It closes nothing (Chubby §2.6): the node stays open and a lock
// held until Close, which must still be called and works, as does Release of the lock. Operations that had
// begun are settled in the background, as after the end of their contexts.
func (h *Handle) Poison() {
	why := &api.Error{Code: api.HandleClosed, Err: Poisoned, Message: "this handle was poisoned; close it, and open the node again"}
	h.mu.Lock()
	if h.unusable == nil {
		h.unusable = why
	}
	h.queue.wakeNext()
	h.mu.Unlock()
	h.endPoisonCtx(Poisoned)
}

// beginCall begins a call on the handle, unless none can succeed any more. Its context ends with ctx or when
// the handle is poisoned. Until leave is called, Close does not park the handle for another Open, which would
// change the rest of this call.
func (h *Handle) beginCall(ctx context.Context, op string) (within context.Context, leave context.CancelFunc, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unusable != nil {
		return nil, nil, withOperation(h.unusable, op, h.path)
	}
	h.callsInFlight++
	within, end := endingWith(ctx, h.poisonCtx)
	return within, func() {
		end()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.callsInFlight--
	}, nil
}

func (h *Handle) poisonedError(op string, err error) error {
	if !errors.Is(err, Poisoned) || errors.Is(err, api.HandleClosed) {
		return err
	}
	message := "this handle was poisoned while the operation waited"
	if errors.Is(err, api.Uncertain) {
		message += "; it may or may not have been done, and if not, it will not be"
	}
	return &api.Error{Code: api.HandleClosed, Op: op, Path: h.path, Err: Poisoned, Message: message}
}

func (h *Handle) currentToken() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.currentTokenLocked()
}

func (h *Handle) currentTokenLocked() []byte {
	if h.boundToken != nil {
		return h.boundToken
	}
	return h.token
}

// openToken returns the handle's token without a sequencer: the library's questions must not fail when the
// bound lock is lost.
func (h *Handle) openToken() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.token
}
