package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
)

// Creation says whether Open creates the node: what it does if there is no node of that
// name, and if there is one.
type Creation uint8

const (
	Existing     Creation = 0 // do not create: an absent node is NotFound
	File         Creation = 1 // create a file if the node is absent
	Directory    Creation = 2 // create a directory if the node is absent
	NewFile      Creation = 3 // create a file; a node of that name is Exists
	NewDirectory Creation = 4 // create a directory; a node of that name is Exists
)

// toWire returns how a request says it; kind is that of an existing node.
func (c Creation) toWire(kind api.Kind) (create api.Create, created api.Kind, ok bool) {
	switch c {
	case Existing:
		return api.MustExist, kind, kind == 0 || kind.Valid()
	case File:
		return api.MayCreate, api.File, kind == 0 || kind == api.File
	case Directory:
		return api.MayCreate, api.Directory, kind == 0 || kind == api.Directory
	case NewFile:
		return api.MustCreate, api.File, kind == 0 || kind == api.File
	case NewDirectory:
		return api.MustCreate, api.Directory, kind == 0 || kind == api.Directory
	}
	return 0, 0, false
}

// OpenOptions says for what a handle is opened: Read, Write or ChangeACL, at least
// one. The node's ACLs are checked for these rights when it is opened.
type OpenOptions struct {
	Read      bool // to read contents, metadata and listings
	Write     bool // to write contents, delete, and acquire the lock in either mode (Chubby §2.4)
	ChangeACL bool // to change the ACL names

	// Events are the kinds of events that Next and Events return (Chubby §2.5). They must
	// be Subscribable, and those about contents and children need Read.
	Events []api.EventKind

	// LockDelay is for how long nobody gets a lock that was held through this handle when
	// its session failed (Chubby §2.4): 0 to api.MaxLockDelay. Zero means zero;
	// api.DefaultLockDelay is a good choice where the servers that the lock protects do
	// not check sequencers.
	LockDelay time.Duration

	// CacheLock has a lock that is released through this handle stay with it (Chubby §2.7),
	// so that the next Acquire through it makes no call, and takes about a microsecond. It
	// is given back when another asks for it, when nobody has used it for five seconds, and
	// when the handle is closed; after jeopardy and a fail-over it is not used again. Those
	// who wait get it before this handle does again, and TryAcquire of others gets it unless
	// it is in use, and so does Delete. For the cell, and for whoever asks, the lock is held all the time, and
	// with one token: guards tell one use of it from the next as little as two threads of
	// one process. Release asks nobody then: nil says that no loss was heard of, and after
	// BreakLock with now another may have had the lock. An Acquire in another mode, or for
	// another Reason, makes a call as ever. It needs Write.
	CacheLock bool

	// NoCache has every read through this handle ask the cell, as Config.NoCache has all of a
	// session: no writer ever waits for this reader, and Stat shows the generation of the lock.
	// It is for a file that changes more often than this program reads it, such as a lock file
	// into which others write, beside others that are worth caching. A master of v0.1.0 has
	// writers wait for the reader all the same.
	NoCache bool

	// IfSequencer makes an Open with Create conditional: the sequencer must be valid at the moment
	// at which the node is created, or found there, else it is BadSequencer, and nothing is created or opened
	// (Chubby §2.4). The handle is not bound to it; see SetSequencer. A zero Sequencer is never valid. It takes up to
	// three calls more, and the right to write the directory of the node, even if the node is there. Handle.Open
	// depends on it in place of what the handle of the directory is bound to.
	IfSequencer *sequencer.Sequencer

	Create    Creation
	Kind      api.Kind // with Existing: what the node must be; 0 accepts both kinds
	Ephemeral bool     // the created node is deleted when nobody has it open any more
	Contents  []byte   // of a created file
	ACL       api.ACL  // of a created node; empty names are inherited
}

// Open opens a node, and creates it first if the options say so. If ctx ends before
// an answer, the handle is closed in the background, if it was opened. The error is then
// Uncertain if the options have Create, as the node may have been created, and else, as
// nothing is left of it, Unavailable or Cancelled, as that of a read.
func (c *Client) Open(ctx context.Context, path string, opts OpenOptions) (*Handle, error) {
	p, err := c.cell.parsePath("open", path)
	if err != nil {
		return nil, err
	}
	if err := opts.validate(p); err != nil {
		return nil, err
	}
	if opts.IfSequencer != nil {
		return openBelowParent(ctx, c, p, opts)
	}
	if h, ok, err := c.openFromCache(ctx, p, opts); ok {
		return h, err
	}
	return openAtCell(ctx, c, opts.wireRequest(p), func() *Handle { return newHandle(c, p, opts) })
}

// openAtCell opens a node by sendOpen, and again if that may succeed then; anew makes the handle.
func openAtCell(ctx context.Context, c *Client, request *chubbypb.OpenRequest, anew func() *Handle) (*Handle, error) {
	h, gone, err := c.sendOpen(ctx, anew(), request)
	for opened := 1; gone && opened < maxReopen; opened++ {
		h, gone, err = c.sendOpen(ctx, anew(), request)
	}
	if errors.Is(err, api.QuotaExceeded) && c.closeAllIdleHandles() {
		h, _, err = c.sendOpen(ctx, anew(), request) // waits until the janitor has closed them
	}
	return h, err
}

// Open opens a node below a directory, whose handle h is (Chubby §2.6). name has one
// component or several, joined by slashes. The node is looked up in the instance of
// the directory to which h is bound. The cell is asked each time; only Client.Open
// uses the cache.
func (h *Handle) Open(ctx context.Context, name string, opts OpenOptions) (*Handle, error) {
	p, err := api.ParsePath(h.path + "/" + name)
	if err != nil {
		return nil, fmt.Errorf("open %q in %s: %w", name, h.path, err)
	}
	if err := opts.validate(p); err != nil {
		return nil, err
	}
	token, err := tokenFor(ctx, h, opts.IfSequencer)
	if err != nil {
		return nil, err
	}
	ctx, leave, err := h.beginCall(ctx, "open")
	if err != nil {
		return nil, err
	}
	defer leave()
	request := opts.wireRequest(p)
	request.Path, request.Directory = name, token
	below, err := openAtCell(ctx, h.client, request, func() *Handle { return newHandle(h.client, p, opts) })
	return below, h.poisonedError("open", err)
}

// sendOpen opens h, which is new, at the cell. gone says that an attempt whose answer was lost has opened a node that was
// there, and that somebody has deleted it since: so another Open says what is there now, or creates it.
func (c *Client) sendOpen(ctx context.Context, h *Handle, request *chubbypb.OpenRequest) (opened *Handle, gone bool, err error) {
	attempts := 0
	var reply *chubbypb.OpenReply
	var epoch api.Epoch // of the master that answered
	send := func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) (err error) {
		attempts++
		reply, err = t.data.chubby.Open(ctx, openRequestFor(request, caller, m))
		epoch = api.Epoch(caller.GetEpoch())
		return err
	}
	f := c.cache.beginFetch(h.name)
	defer c.cache.endFetch(f)
	m := mutation{op: "open", path: h.path, send: send, size: len(request.GetContents()),
		// Events about the handle may arrive before the answer to the Open.
		onNumber: func(number uint64) { h.id = api.HandleID(number); c.handles.put(h) },
		settle: func(ctx context.Context, number uint64) {
			c.settleOpen(ctx, h.path, number, request)
		}}
	if request.GetCreate() == chubbypb.Create_CREATE_MUST_EXIST {
		m.undone = func(error) bool { return true } // all that there is of it is the handle
	} else {
		// What has created a node is answered by the log, again and again; only what has found one is refused so.
		m.undone = func(err error) bool {
			return request.GetCreate() == chubbypb.Create_CREATE_MAY && api.CodeOf(err) == api.HandleClosed
		}
		m.fetch, m.touches = f, []api.Name{h.name, h.name.Parent()}
		m.effectOf = func() changeEffect {
			if reply.GetCreated() {
				return effectAny
			}
			return effectNone
		}
	}
	if err := c.mutate(ctx, m); err != nil {
		if h.id != 0 {
			c.handles.remove(h)
		}
		c.cacheAbsence(f, epoch, err)
		return nil, attempts > 1 && api.CodeOf(err) == api.HandleClosed, err
	}
	h.noteOpened(f, epoch, reply)
	h.created = reply.GetCreated()
	h.mu.Lock()
	h.token, h.knownInEpoch = reply.GetHandle(), epoch
	h.mu.Unlock()
	if h.watches && c.Epoch() != epoch {
		c.auditor.requestAudit() // another master took over meanwhile, and all handles but this may have been presented to it
	}
	return h, false, nil
}

// openRequestFor returns the request as one attempt sends it.
func openRequestFor(request *chubbypb.OpenRequest, caller *chubbypb.Caller, m *chubbypb.Mutation) *chubbypb.OpenRequest {
	return &chubbypb.OpenRequest{
		Caller:      caller,
		Mutation:    m,
		Path:        request.GetPath(),
		Directory:   request.GetDirectory(),
		Events:      request.GetEvents(),
		Read:        request.GetRead(),
		Write:       request.GetWrite(),
		ChangeAcl:   request.GetChangeAcl(),
		LockDelayNs: request.GetLockDelayNs(),
		Create:      request.GetCreate(),
		Kind:        request.GetKind(),
		Ephemeral:   request.GetEphemeral(),
		Contents:    request.GetContents(),
		Acl:         request.GetAcl(),
		CacheLock:   request.GetCacheLock(),
		NoCache:     request.GetNoCache(),
	}
}

// validate checks the options.
func (o OpenOptions) validate(p api.Path) error {
	bad := func(format string, args ...any) error {
		return &api.Error{Code: api.InvalidArgument, Op: "open", Path: p.String(), Message: fmt.Sprintf(format, args...)}
	}
	create, kind, ok := o.Create.toWire(o.Kind)
	switch {
	case !o.Read && !o.Write && !o.ChangeACL:
		return bad("the handle is to be for nothing: set Read, Write or ChangeACL of OpenOptions")
	case !ok:
		return bad("Create %d and Kind %v do not go together", o.Create, o.Kind)
	case o.LockDelay < 0 || o.LockDelay > api.MaxLockDelay:
		return bad("LockDelay is %v; want 0 to %v", o.LockDelay, api.MaxLockDelay)
	case (o.Ephemeral || len(o.Contents) > 0) && create == api.MustExist:
		return bad("Ephemeral and Contents are of nodes that are created, and Create is Existing")
	case o.IfSequencer != nil && create == api.MustExist:
		return bad("IfSequencer is of nodes that are created, and Create is Existing")
	case o.IfSequencer != nil && p.IsRoot():
		return bad("IfSequencer is of nodes that are created, and the root of a cell is there")
	case o.IfSequencer != nil && o.IfSequencer.String() == "":
		return noSequencerError("open", p.String())
	case len(o.Contents) > 0 && kind == api.Directory:
		return bad("a directory has no contents")
	case o.CacheLock && !o.Write:
		return bad("CacheLock is for locks, which need Write")
	}
	for _, kind := range o.Events {
		switch {
		case !kind.Subscribable():
			return bad("no handle is opened for events of kind %v", kind)
		case kind.NeedsRead() && !o.Read:
			return bad("events of kind %v tell of what is read, and Read is not set", kind)
		}
	}
	return checkContents(o.Contents, "open", p.String())
}

// wireRequest returns the request for these options, which must be valid.
func (o OpenOptions) wireRequest(p api.Path) *chubbypb.OpenRequest {
	create, kind, _ := o.Create.toWire(o.Kind)
	var events []chubbypb.EventKind
	for _, kind := range o.Events {
		events = append(events, chubbypb.EventKind(kind))
	}
	if o.CacheLock && !slices.Contains(o.Events, api.EventConflictingLock) {
		events = append(events, chubbypb.EventKind(api.EventConflictingLock))
	}
	return &chubbypb.OpenRequest{
		Path:        p.String(),
		Read:        o.Read,
		Write:       o.Write,
		ChangeAcl:   o.ChangeACL,
		Events:      events,
		LockDelayNs: int64(o.LockDelay),
		Create:      chubbypb.Create(create),
		Kind:        chubbypb.Kind(kind),
		Ephemeral:   o.Ephemeral,
		Contents:    o.Contents,
		Acl:         aclToWire(o.ACL),
		CacheLock:   o.CacheLock,
		NoCache:     o.NoCache,
	}
}

// maxSmallOpen is how many bytes of contents an Open may carry over the control
// connection. On a network of 1 Mbit/s the cleanup calls, maxCleanupCalls at a time,
// delay a KeepAlive by little more than a second, and by four if all of the paths and
// lists are as long as they may be.
const maxSmallOpen = 1 << 10

// settleOpen settles an Open that was abandoned: it is withdrawn, or, if it was done,
// its answer is asked for again, and the handle in it closed.
func (c *Client) settleOpen(ctx context.Context, path string, number uint64, request *chubbypb.OpenRequest) {
	withdrawn, err := c.withdraw(ctx, "open", path, number)
	if err != nil || withdrawn.GetCancelled() {
		c.numbers.finish(number)
		return
	}
	var handle []byte
	class, over := classCleanup, (*target).control // later cleanup calls wait for this one
	if len(request.GetContents()) > maxSmallOpen {
		class, over = classUnlimited, func(t *target) *connection { return t.data }
	}
	err = c.sendUntilAnswered(ctx, "open", path, number, class, func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		reply, err := over(t).chubby.Open(ctx, openRequestFor(request, caller, m))
		handle = reply.GetHandle()
		return err
	})
	if err != nil {
		return // it was done, and failed
	}
	_ = c.sendUntilAnswered(ctx, "close", path, c.numbers.allocateNow(), classCleanup, closeSender(handle))
}

// parsePath checks a path, and that it is not in another cell, as far as is known:
// the cell called local has a name of its own.
func (c *Cell) parsePath(op, path string) (api.Path, error) {
	p, err := api.ParsePath(path)
	if err != nil {
		return api.Path{}, fmt.Errorf("%s: %w", op, err)
	}
	c.locator.mu.Lock()
	name := c.locator.cellName
	c.locator.mu.Unlock()
	if in := p.Cell(); in != api.LocalCell && in != c.cfg.Cell && in != name && (name != "" || c.cfg.Cell != api.LocalCell) {
		return api.Path{}, &api.Error{Code: api.WrongCell, Op: op, Path: path, Cell: c.cfg.Cell,
			Message: fmt.Sprintf("the path is in cell %s, and this client is one of cell %s; open a client for each cell", in, c.cfg.Cell)}
	}
	return p, nil
}

// rootPath returns the path of the root of a cell.
func rootPath(c Config) string { return "/" + api.Root + "/" + c.Cell }
