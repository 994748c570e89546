package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// remove takes a handle out, unless an Open has taken its place at the cell, and
// here: events of the node are for that one then.
func (t *handles) remove(h *Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[h.id] == h {
		delete(t.byID, h.id)
	}
}

// all returns the handles that are open, or about to be, in the order of their
// opening.
func (t *handles) all() []*Handle {
	t.mu.Lock()
	list := slices.Collect(maps.Values(t.byID))
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b *Handle) int { return cmp.Compare(a.id, b.id) })
	return list
}

// locks returns the locks whose owners have not let go, lost ones too.
func (t *handles) locks() []*Lock {
	var list []*Lock
	for _, h := range t.all() {
		h.mu.Lock()
		l := h.lock
		h.mu.Unlock()
		if l != nil && !l.isLet() {
			list = append(list, l)
		}
	}
	return list
}

// ended returns those of the locks whose contexts have ended.
func (t *handles) ended() []*Lock {
	return slices.DeleteFunc(t.locks(), func(l *Lock) bool { return l.ctx.Err() == nil })
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

// Stat returns the node's metadata. In a session that caches, the generation of
// the lock is not shown (0): it changes without a word to caches. A session with
// Config.NoCache sees it.
func (h *Handle) Stat(ctx context.Context) (api.Stat, error) {
	if h.fromCache(ctx) {
		if stat, ok := h.client.cache.statOf(h.name, h.instance); ok {
			return stat, nil
		}
	}
	var stat api.Stat
	err := h.fetch(ctx, "stat", func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) (cacheable bool, err error) {
		reply, err := t.data.chubby.GetStat(ctx, &chubbypb.GetStatRequest{Caller: caller, Handle: token})
		if err == nil {
			stat, err = h.shown(reply.GetStat())
		}
		return reply.GetCacheable(), err
	}, func(e *entry) { e.stat = &stat })
	return stat, err
}

// Contents returns the whole of a file with its metadata (see Stat), atomically.
//
// The contents of an empty file are empty, and not nil.
func (h *Handle) Contents(ctx context.Context) ([]byte, api.Stat, error) {
	if h.reads && h.fromCache(ctx) {
		if contents, stat, ok := h.client.cache.contentsOf(h.name, h.instance); ok {
			return contents, stat, nil
		}
	}
	var stat api.Stat
	var contents []byte
	err := h.fetch(ctx, "read", func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) (cacheable bool, err error) {
		reply, err := t.data.chubby.GetContentsAndStat(ctx, &chubbypb.GetContentsAndStatRequest{Caller: caller, Handle: token})
		if err == nil {
			contents = append([]byte{}, reply.GetContents()...)
			stat, err = h.shown(reply.GetStat())
		}
		return reply.GetCacheable(), err
	}, func(e *entry) { e.stat, e.contents, e.whole = &stat, bytes.Clone(contents), true })
	return contents, stat, err
}

// shown reads metadata as this session shows it.
func (h *Handle) shown(s *chubbypb.Stat) (api.Stat, error) {
	stat, err := s.Stat()
	if h.client.cache.on() {
		stat.Lock = 0
	}
	return stat, err
}

// listed reads metadata of a listing as this session shows it. What a cached
// listing shows is what changes with the children themselves. How many children
// they have in turn changes without a word to those who have listed their parent,
// so a session that caches does not show it.
func (h *Handle) listed(s *chubbypb.Stat) (api.Stat, error) {
	stat, err := h.shown(s)
	if h.client.cache.on() {
		stat.Children = 0
	}
	return stat, err
}

// ReadDir returns the metadata of a directory's children (see Stat), by name.
// In a session that caches, the number of the children's own children is not shown,
// and Children is 0: Stat of the child tells it. Large directories take several
// calls, between which children may come and go.
func (h *Handle) ReadDir(ctx context.Context) ([]api.Stat, error) {
	if h.reads && h.fromCache(ctx) {
		if list, ok := h.client.cache.childrenOf(h.name, h.instance); ok {
			return list, nil
		}
	}
	var list []api.Stat
	all := h.client.cache.begin(h.name)
	defer h.client.cache.done(all)
	whole := true // every page may be kept
	for {
		var page []api.Stat
		var more, cacheable bool
		var epoch uint64
		err := h.read(ctx, "list", func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) error {
			request := &chubbypb.ReadDirRequest{Caller: caller, Handle: token}
			if len(list) > 0 {
				request.After = list[len(list)-1].Path.Base()
			}
			reply, err := t.data.chubby.ReadDir(ctx, request)
			if err != nil {
				return err
			}
			page, more, cacheable, epoch = nil, reply.GetMore(), reply.GetCacheable(), caller.GetEpoch()
			for _, child := range reply.GetChildren() {
				stat, err := h.listed(child)
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
		whole = whole && cacheable
		if !more || len(page) == 0 {
			h.keep(all, epoch, whole, func(e *entry) { e.children, e.listed = slices.Clone(list), h.instance })
			return list, nil
		}
	}
}

// fetch makes a call that changes nothing, and keeps what it brings.
func (h *Handle) fetch(ctx context.Context, op string, attempt func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) (cacheable bool, err error), set func(*entry)) error {
	var epoch uint64
	var cacheable bool
	f := h.client.cache.begin(h.name)
	defer h.client.cache.done(f)
	err := h.read(ctx, op, func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) (err error) {
		epoch = caller.GetEpoch()
		cacheable, err = attempt(ctx, t, caller, token)
		return err
	})
	if err == nil {
		h.keep(f, epoch, cacheable, set)
	}
	return err
}

// read makes a call that changes nothing; its token is that of now for all
// attempts.
func (h *Handle) read(ctx context.Context, op string, attempt func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) error) error {
	ctx, leave, err := h.enter(ctx, op)
	if err != nil {
		return err
	}
	defer leave()
	token := h.key()
	return h.poisoned(op, h.client.read(ctx, op, h.path, func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
		return attempt(ctx, t, caller, token)
	}))
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
