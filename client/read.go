package client

import (
	"bytes"
	"context"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// Stat returns the node's metadata. In a session that caches, the generation of the lock is 0, as caches do
// not hear of its changes. A session with Config.NoCache sees it, and a handle with OpenOptions.NoCache.
func (h *Handle) Stat(ctx context.Context) (api.Stat, error) {
	var kept api.Stat
	if h.fromCache(ctx, func(now session.Instant) (is finding) {
		kept, is = h.client.cache.statOf(now, h.name, h.opened.Instance)
		return is
	}) {
		return kept, nil
	}
	var stat api.Stat
	err := h.readAndCache(ctx, "stat", func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) (cacheable bool, err error) {
		reply, err := t.data.chubby.GetStat(ctx, &chubbypb.GetStatRequest{Caller: caller, Handle: token})
		if err == nil {
			stat, err = h.statAsShown(reply.GetStat())
		}
		return reply.GetCacheable(), err
	}, func(e *entry) { e.stat = &stat })
	return stat, err
}

// Contents returns a whole file with its metadata (see Stat), atomically. Empty contents are not nil.
func (h *Handle) Contents(ctx context.Context) ([]byte, api.Stat, error) {
	var kept []byte
	var keptStat api.Stat
	if h.reads && h.fromCache(ctx, func(now session.Instant) (is finding) {
		kept, keptStat, is = h.client.cache.contentsOf(now, h.name, h.opened.Instance)
		return is
	}) {
		return kept, keptStat, nil
	}
	var stat api.Stat
	var contents []byte
	err := h.readAndCache(ctx, "read", func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) (cacheable bool, err error) {
		reply, err := t.data.chubby.GetContentsAndStat(ctx, &chubbypb.GetContentsAndStatRequest{Caller: caller, Handle: token})
		if err == nil {
			contents = append([]byte{}, reply.GetContents()...)
			stat, err = h.statAsShown(reply.GetStat())
		}
		return reply.GetCacheable(), err
	}, func(e *entry) { e.stat, e.contents, e.hasContents = &stat, bytes.Clone(contents), true })
	return contents, stat, err
}

func cachesReads(h *Handle) bool { return !h.openedFor.noCache && h.client.cache.enabled() }

func (h *Handle) statAsShown(s *chubbypb.Stat) (api.Stat, error) {
	stat, err := s.Stat()
	if cachesReads(h) {
		stat.Lock = 0
	}
	return stat, err
}

// askChildren asks for a page of a directory, and converts it to what this session shows. An added or removed
// grandchild does not invalidate a cached listing. So a session that caches does not show how many children
// the children have.
func askChildren(ctx context.Context, h *Handle, after string, most int) (page []api.Stat, reply *chubbypb.ReadDirReply, epoch uint64, err error) {
	err = h.readCall(ctx, "list", func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) error {
		var err error
		if reply, err = t.data.chubby.ReadDir(ctx, &chubbypb.ReadDirRequest{Caller: caller, Handle: token, After: after, Most: pageLength(most)}); err != nil {
			return err
		}
		page, epoch = nil, caller.GetEpoch()
		for _, child := range reply.GetChildren() {
			stat, err := h.statAsShown(child)
			if err != nil {
				return err
			}
			if cachesReads(h) {
				stat.Children = 0
			}
			page = append(page, stat)
		}
		return nil
	})
	return page, reply, epoch, err
}

// ReadDirPage returns a part of ReadDir: the children whose names follow after, and whether others follow, to
// be asked for with the last name. The parameter most limits the part; 0 is the maximum, api.MaxPage. It
// neither reads nor fills the client's cache. It is for lists shown to people, a part at a time.
func (h *Handle) ReadDirPage(ctx context.Context, after string, most int) (part []api.Stat, more bool, err error) {
	part, reply, _, err := askChildren(ctx, h, after, most)
	return part, reply.GetMore() && len(part) > 0, err
}

// ReadDir returns the metadata of a directory's children (see Stat), by name. In a session that caches,
// Children of each is 0, as caches do not hear of its changes; Stat of the child shows it. Large directories
// take several calls, between which children may be added and removed.
func (h *Handle) ReadDir(ctx context.Context) ([]api.Stat, error) {
	var kept []api.Stat
	if h.reads && h.fromCache(ctx, func(now session.Instant) (is finding) {
		kept, is = h.client.cache.childrenOf(now, h.name, h.opened.Instance)
		return is
	}) {
		return kept, nil
	}
	var list []api.Stat
	all := h.client.cache.beginFetch(h.name)
	defer h.client.cache.endFetch(all)
	whole := true // every page may be cached
	for last := ""; ; last = list[len(list)-1].Path.Base() {
		page, reply, epoch, err := askChildren(ctx, h, last, 0)
		if err != nil {
			return nil, err
		}
		list = append(list, page...)
		whole = whole && reply.GetCacheable()
		if !reply.GetMore() || len(page) == 0 {
			h.cacheRead(all, epoch, whole, func(e *entry) { e.children, e.listedInstance = slices.Clone(list), h.opened.Instance })
			return list, nil
		}
	}
}

func (h *Handle) readAndCache(ctx context.Context, op string, attempt func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) (cacheable bool, err error), set func(*entry)) error {
	var epoch uint64
	var cacheable bool
	f := h.client.cache.beginFetch(h.name)
	defer h.client.cache.endFetch(f)
	err := h.readCall(ctx, op, func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) (err error) {
		epoch = caller.GetEpoch()
		cacheable, err = attempt(ctx, t, caller, token)
		return err
	})
	if err == nil {
		h.cacheRead(f, epoch, cacheable, set)
	}
	return err
}

// readCall makes a call that changes nothing. All its attempts carry the same token.
func (h *Handle) readCall(ctx context.Context, op string, attempt func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) error) error {
	ctx, leave, err := h.beginCall(ctx, op)
	if err != nil {
		return err
	}
	defer leave()
	token := h.currentToken()
	return h.poisonedError(op, h.client.read(ctx, op, h.path, func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
		return attempt(ctx, t, caller, token)
	}))
}
