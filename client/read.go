package client

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Stat returns the node's metadata. In a session that caches, the generation of the lock is 0, as caches do
// not hear of its changes. A session with Config.NoCache sees it, and a handle with OpenOptions.NoCache.
func (h *Handle) Stat(ctx context.Context) (api.Stat, error) {
	if kept, ok := h.readCache(ctx, wantStat); ok {
		return *kept.stat, nil
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
	if kept, ok := h.readCache(ctx, wantContents); ok {
		return bytes.Clone(kept.contents), *kept.stat, nil
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
	if kept, ok := h.readCache(ctx, wantChildren); ok {
		return slices.Clone(kept.children), nil
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
	return h.poisonedError(op, h.client.read(ctx, classRead, op, h.path, func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
		return attempt(ctx, t, caller, token)
	}))
}

// The master sends a listing in pages, each of another moment: an entry that exists throughout is listed
// once; others may be listed or not.

// listing is what its pages are asked for by.
type listing[T any] struct {
	cell     *Cell
	op, path string
	ask      func(ctx context.Context, t *target, after []byte, most uint32) (page []T, next []byte, err error)
	err      error // why it cannot be asked for
}

// part returns the page after a mark, and the mark of the next, empty on the last.
func (l listing[T]) part(ctx context.Context, after string, most int) (part []T, next string, err error) {
	if l.err != nil {
		return nil, "", l.err
	}
	err = l.cell.ask(ctx, l.op, l.path, func(ctx context.Context, t *target) error {
		page, mark, err := l.ask(ctx, t, []byte(after), pageLength(most))
		part, next = page, string(mark)
		return err
	})
	return part, next, err
}

func pageLength(most int) uint32 { return uint32(min(max(most, 0), api.MaxPage)) }

// each yields the entries of page after page. An error is the last item.
func (l listing[T]) each(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for after := ""; ; {
			page, next, err := l.part(ctx, after, 0)
			if err == nil && next != "" && next == after {
				err = &api.Error{Code: api.Corrupt, Op: l.op, Path: l.path, Message: "the master names the same page as the next again; this is a bug"}
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			after = next
		}
	}
}

func (l listing[T]) all(ctx context.Context) ([]T, error) {
	var all []T
	for one, err := range l.each(ctx) {
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// locksBelow lists the locks at and below a path, or those of a session.
func locksBelow(c *Cell, prefix string, of api.SessionID) listing[LockInfo] {
	const op = "list locks"
	prefix = cmp.Or(prefix, rootPath(c.cfg))
	p, err := c.parsePath(op, prefix)
	return listing[LockInfo]{c, op, prefix, func(ctx context.Context, t *target, after []byte, most uint32) ([]LockInfo, []byte, error) {
		reply, err := t.data.chubby.ListLocks(ctx, &chubbypb.ListLocksRequest{Cell: c.cfg.Cell, Prefix: p.String(), After: after, Session: uint64(of), Most: most})
		return chubbypb.Records[LockInfo](reply.GetLocks()), reply.GetNext(), err
	}, err}
}

// Locks lists the locks at and below a path that are held, waited for or delayed, by path; an empty prefix is
// the whole cell. EachLock needs less memory. Where clients identify themselves, the list has only the locks
// of nodes that the client may read, unless it is an operator.
func (c *Cell) Locks(ctx context.Context, prefix string) ([]LockInfo, error) {
	list, err := locksBelow(c, prefix, 0).all(ctx)
	slices.SortFunc(list, func(a, b LockInfo) int { return strings.Compare(a.Path, b.Path) })
	return list, err
}

// EachLock yields the locks that Locks lists, those nearer to the root first. An error is the last item.
func (c *Cell) EachLock(ctx context.Context, prefix string) iter.Seq2[LockInfo, error] {
	return locksBelow(c, prefix, 0).each(ctx)
}

// LocksOf lists the locks that a session holds, by path; none for an absent session.
func (c *Cell) LocksOf(ctx context.Context, id api.SessionID) ([]LockInfo, error) {
	list, err := locksBelow(c, "", id).all(ctx)
	return slices.DeleteFunc(list, func(l LockInfo) bool { // an earlier master lists all
		return l.MoreHolders == 0 && !slices.ContainsFunc(l.Holders, func(h api.Holder) bool { return h.Session == id })
	}), err
}

// LocksPage returns a part of Locks, by path, and the mark of the next part: after is "" for the first part,
// and next is "" with the last. Unless of is 0, it lists as LocksOf does. The parameter most limits a part (0
// is the maximum, api.MaxPage), which may be empty although others follow. A mark is for this cell and this
// client's principal alone; another is InvalidArgument: begin again. It is for lists shown to people, a part
// at a time.
func (c *Cell) LocksPage(ctx context.Context, prefix string, of api.SessionID, after string, most int) (part []LockInfo, next string, err error) {
	return locksBelow(c, prefix, of).part(ctx, after, most)
}

// allSessions lists the sessions of the cell, or one.
func allSessions(c *Cell, only api.SessionID) listing[SessionInfo] {
	return listing[SessionInfo]{c, "list sessions", rootPath(c.cfg), func(ctx context.Context, t *target, after []byte, most uint32) ([]SessionInfo, []byte, error) {
		reply, err := t.data.chubby.ListSessions(ctx, &chubbypb.ListSessionsRequest{Cell: c.cfg.Cell, After: after, Session: uint64(only), Most: most})
		return chubbypb.Records[SessionInfo](reply.GetSessions()), reply.GetNext(), err
	}, nil}
}

// Sessions lists the sessions of the cell, by id. EachSession needs less memory. Where clients identify
// themselves, the list has only the sessions of the client's own principal, unless that is an operator.
func (c *Cell) Sessions(ctx context.Context) ([]SessionInfo, error) {
	return allSessions(c, 0).all(ctx)
}

// EachSession yields the sessions of the cell, by id. An error is the last item.
func (c *Cell) EachSession(ctx context.Context) iter.Seq2[SessionInfo, error] {
	return allSessions(c, 0).each(ctx)
}

// FindSession returns one session, and whether it exists.
func (c *Cell) FindSession(ctx context.Context, id api.SessionID) (info SessionInfo, found bool, err error) {
	for s, err := range allSessions(c, id).each(ctx) {
		if err != nil || s.Session == id { // an earlier master lists all
			return s, err == nil, err
		}
	}
	return SessionInfo{}, false, nil
}

// SessionsPage is for Sessions what LocksPage is for Locks.
func (c *Cell) SessionsPage(ctx context.Context, after string, most int) (part []SessionInfo, next string, err error) {
	return allSessions(c, 0).part(ctx, after, most)
}
