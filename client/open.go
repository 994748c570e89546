package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
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
		return openBelowParent(ctx, c, p, opts)
	}
	if h, ok, err := c.openFromCache(ctx, p, opts); ok {
		return h, err
	}
	return openAtCell(ctx, c, opts.wireRequest(p), func() *Handle { return newHandle(c, p, opts) })
}

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
		reply, err = t.data.chubby.Open(ctx, openRequestFor(request, caller, m))
		epoch = api.Epoch(caller.GetEpoch())
		return err
	}
	f := c.cache.beginFetch(h.name)
	defer c.cache.endFetch(f)
	m := mutation{op: "open", path: h.path, send: send, size: len(request.GetContents()),
		// Events of the handle may arrive before the answer to the Open.
		onNumber: func(number uint64) { h.id = api.HandleID(number); c.handles.put(h) },
		settle: func(ctx context.Context, number uint64) {
			c.settleOpen(ctx, h.path, number, request)
		}}
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
		c.cacheAbsence(f, epoch, err)
		return nil, attempts > 1 && api.CodeOf(err) == api.HandleClosed, err
	}
	h.noteOpened(f, epoch, reply)
	h.created = reply.GetCreated()
	h.mu.Lock()
	h.token, h.knownInEpoch = reply.GetHandle(), epoch
	h.mu.Unlock()
	if h.watches && c.Epoch() != epoch {
		c.auditor.requestAudit() // another master took over meanwhile, and may know all handles except this
	}
	return h, false, nil
}

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
		reply, err := over(t).chubby.Open(ctx, openRequestFor(request, caller, m))
		handle = reply.GetHandle()
		return err
	})
	if err != nil {
		return // done, and failed
	}
	_ = c.sendUntilAnswered(ctx, "close", path, c.numbers.allocateNow(), classCleanup, closeSender(handle))
}
