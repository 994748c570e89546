package client

import (
	"bytes"
	"context"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

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
