package client

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

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
