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

// Open opens a node, and creates it first if the options say so. If ctx ends before an answer, an opened
// handle is closed in the background. With Create the error is then Uncertain, as the node may have been
// created; otherwise nothing remains, and it is a read's, Unavailable or Cancelled.
func (c *Client) Open(ctx context.Context, path string, opts OpenOptions) (*Handle, error) {
	p, err := c.cell.parsePath("open", path)
	if err != nil {
		return nil, err
	}
	if err := opts.validate(p); err != nil {
		return nil, err
	}
	if opts.IfSequencer != nil {
		var below *Handle
		err = visit(ctx, c, p.Parent().String(), OpenOptions{Write: true, Kind: api.Directory}, func(dir *Handle) (err error) {
			below, err = dir.Open(ctx, p.Base(), opts)
			return err
		})
		return below, err
	}
	if h, ok, err := c.openFromCache(ctx, p, opts); ok {
		return h, err
	}
	return openAtCell(ctx, c, opts.wireRequest(p), func() *Handle { return newHandle(c, p, opts) })
}

func openAtCell(ctx context.Context, c *Client, request *chubbypb.OpenRequest, anew func() *Handle) (*Handle, error) {
	for opened := 1; ; opened++ {
		h, gone, err := c.sendOpen(ctx, anew(), request)
		again := gone || errors.Is(err, api.QuotaExceeded) && c.cache.discardAllIdle() // the next one waits until the janitor has closed them
		if !again || opened == maxReopen {
			return h, err
		}
	}
}

// Open opens a node below a directory, whose handle h is (Chubby §2.6). name has one or several components,
// joined by slashes. The cell looks the node up in the directory instance of h. Open always asks the cell;
// only Client.Open uses the cache.
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

// sendOpen opens h, which is new, at the cell. gone: an attempt without an answer opened an existing node,
// which was deleted since; so another Open reports the present state, or creates the node.
func (c *Client) sendOpen(ctx context.Context, h *Handle, request *chubbypb.OpenRequest) (opened *Handle, gone bool, err error) {
	attempts := 0
	var reply *chubbypb.OpenReply
	var epoch api.Epoch // of the master that answered
	send := func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) (err error) {
		attempts++
		request.Caller, request.Mutation = caller, m
		reply, err = t.data.chubby.Open(ctx, request)
		epoch = api.Epoch(caller.GetEpoch())
		return err
	}
	f := c.cache.beginFetch(h.name)
	defer c.cache.endFetch(f)
	m := mutation{op: "open", path: h.path, send: send, size: len(request.GetContents()),
		// Events of the handle may arrive before the answer to the Open.
		onNumber: func(number uint64) { h.id = api.HandleID(number); c.handles.put(h) },
		settle:   func(ctx context.Context, number uint64) { c.settleOpen(ctx, h.path, number, request) }}
	if request.GetCreate() == chubbypb.Create_CREATE_MUST_EXIST {
		m.undone = func(error) bool { return true } // only the handle remains
	} else {
		// The log repeats the answer of an Open that created a node; only one that found a node is refused
		// so.
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
		c.cache.storeAbsence(f, epoch, err)
		return nil, attempts > 1 && api.CodeOf(err) == api.HandleClosed, err
	}
	h.noteOpened(f, epoch, reply)
	h.created = reply.GetCreated()
	h.mu.Lock()
	h.token, h.knownInEpoch = reply.GetHandle(), epoch
	h.mu.Unlock()
	if h.openedFor.watches && c.Epoch() != epoch {
		c.auditor.requestAudit() // another master took over meanwhile, and may know all handles except this
	}
	return h, false, nil
}

// maxSmallOpen limits the bytes of contents in an Open over the control connection. At 1 Mbit/s the cleanup
// calls, maxCleanupCalls at a time, delay a KeepAlive by little more than a second, and by four with paths
// and lists of maximum length.
const maxSmallOpen = 1 << 10

// settleOpen settles an abandoned Open: it withdraws it, or closes the opened handle.
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
		request.Caller, request.Mutation = caller, m
		reply, err := over(t).chubby.Open(ctx, request)
		handle = reply.GetHandle()
		return err
	})
	if err != nil {
		return // done, and failed
	}
	c.giveBack(ctx, "close", path, closeSender(handle))
}

// Creation says whether Open creates the node: if it is absent, and if it exists.
type Creation uint8

const (
	Existing     Creation = 0 // create nothing: an absent node is NotFound
	File         Creation = 1 // create an absent file
	Directory    Creation = 2 // create an absent directory
	NewFile      Creation = 3 // create a file; an existing node is Exists
	NewDirectory Creation = 4 // create a directory; an existing node is Exists
)

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

// OpenOptions says what a handle is for: Read, Write or ChangeACL, at least one. Open checks the node's ACLs
// for these rights.
type OpenOptions struct {
	Read      bool // to read contents, metadata and listings
	Write     bool // to write contents, delete, and acquire the lock in either mode (Chubby §2.4)
	ChangeACL bool // to change the ACL names

	// Events are the kinds of events that Next and Events return (Chubby §2.5). They must be Subscribable,
	// and those about contents and children need Read.
	Events []api.EventKind

	// LockDelay blocks a lock held through this handle after its session failed (Chubby §2.4): 0 to
	// api.MaxLockDelay. Zero means zero; api.DefaultLockDelay is good where the protected servers do not
	// check sequencers.
	LockDelay time.Duration

	// CacheLock keeps a lock after its release with this handle (Chubby §2.7), so that the next Acquire makes
	// no call, and takes about a microsecond. The lock is given back when another asks for it, after five
	// unused seconds, and when the handle is closed; after jeopardy and a fail-over it is not reused. Waiters
	// get it before this handle does again; others' TryAcquire and Delete get it unless it is in use. For the
	// cell and other clients, the lock is held all the time, with one token: guards cannot separate its uses,
	// as with two threads of one process. Release makes no call then: nil says that no loss was reported, and
	// after BreakLock with now another may have had the lock. An Acquire in another mode, or for another
	// Reason, makes a call. CacheLock needs Write.
	CacheLock bool

	// NoCache makes every read through this handle ask the cell, as Config.NoCache does for a session: no
	// writer waits for this reader, and Stat shows the generation of the lock. It is for a file that changes
	// more often than this program reads it, such as a lock file that others write. With a master of v0.1.0
	// writers wait all the same.
	NoCache bool

	// IfSequencer makes an Open with Create conditional: the sequencer must be valid when the node is created
	// or found, else the error is BadSequencer, and nothing is created or opened (Chubby §2.4). It does not
	// bind the handle; see SetSequencer. A zero Sequencer is never valid. It takes up to three more calls,
	// and the right to write the directory of the node, even if the node exists. Handle.Open depends on it
	// instead of the binding of the directory's handle.
	IfSequencer *sequencer.Sequencer

	Create    Creation
	Kind      api.Kind // with Existing: required kind; 0 accepts both
	Ephemeral bool     // delete the created node when its last handle closes
	Contents  []byte   // of a created file
	ACL       api.ACL  // of a created node; empty names are inherited
}

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
