package client

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// The master sends a listing in pages, each of another moment: an entry that exists throughout is listed
// once; others may be listed or not.

// eachPage asks for page after page until the last one, or until yield returns false. ask returns a page and
// the mark of the next, empty on the last.
func eachPage[T any](ctx context.Context, c *Cell, op, path string, ask func(ctx context.Context, t *target, after []byte) (page []T, next []byte, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var after []byte
		for {
			var page []T
			var next []byte
			err := c.ask(ctx, op, path, func(ctx context.Context, t *target) (err error) {
				page, next, err = ask(ctx, t, after)
				return err
			})
			if err == nil && len(next) > 0 && bytes.Equal(next, after) {
				err = &api.Error{Code: api.Corrupt, Op: op, Path: path, Message: "the master names the same page as the next again; this is a bug"}
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
			if len(next) == 0 {
				return
			}
			after = next
		}
	}
}

func collectPages[T any](list iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for one, err := range list {
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// Locks lists the locks at and below a path that are held, waited for or delayed, by path; an empty prefix is
// the whole cell. EachLock needs less memory. Where clients identify themselves, the list has only the locks
// of nodes that the client may read, unless it is an operator.
func (c *Cell) Locks(ctx context.Context, prefix string) ([]LockInfo, error) {
	list, err := collectPages(c.EachLock(ctx, prefix))
	slices.SortFunc(list, func(a, b LockInfo) int { return strings.Compare(a.Path, b.Path) })
	return list, err
}

// EachLock yields the locks that Locks lists, those nearer to the root first. An error is the last item.
func (c *Cell) EachLock(ctx context.Context, prefix string) iter.Seq2[LockInfo, error] {
	return lockPages(ctx, c, prefix, 0)
}

// LocksOf lists the locks that a session holds, by path; none for an absent session.
func (c *Cell) LocksOf(ctx context.Context, id api.SessionID) ([]LockInfo, error) {
	list, err := collectPages(lockPages(ctx, c, "", id))
	return slices.DeleteFunc(list, func(l LockInfo) bool { // an earlier master lists all
		return l.MoreHolders == 0 && !slices.ContainsFunc(l.Holders, func(h api.Holder) bool { return h.Session == id })
	}), err
}

func lockPages(ctx context.Context, c *Cell, prefix string, of api.SessionID) iter.Seq2[LockInfo, error] {
	const op = "list locks"
	if prefix == "" {
		prefix = rootPath(c.cfg)
	}
	p, err := c.parsePath(op, prefix)
	if err != nil {
		return func(yield func(LockInfo, error) bool) { yield(LockInfo{}, err) }
	}
	return eachPage(ctx, c, op, prefix, func(ctx context.Context, t *target, after []byte) (page []LockInfo, next []byte, err error) {
		return askLocks(ctx, t, &chubbypb.ListLocksRequest{Cell: c.cfg.Cell, Prefix: p.String(), After: after, Session: uint64(of)})
	})
}

// LocksPage returns a part of Locks, by path, and the mark of the next part: after is "" for the first part,
// and next is "" with the last. Unless of is 0, it lists as LocksOf does. The parameter most limits a part (0
// is the maximum, api.MaxPage), which may be empty although others follow. A mark is for this cell and this
// client's principal alone; another is InvalidArgument: begin again. It is for lists shown to people, a part
// at a time.
func (c *Cell) LocksPage(ctx context.Context, prefix string, of api.SessionID, after string, most int) (part []LockInfo, next string, err error) {
	const op = "list locks"
	prefix = cmp.Or(prefix, rootPath(c.cfg))
	p, err := c.parsePath(op, prefix)
	if err != nil {
		return nil, "", err
	}
	err = c.ask(ctx, op, prefix, func(ctx context.Context, t *target) error {
		page, mark, err := askLocks(ctx, t, &chubbypb.ListLocksRequest{Cell: c.cfg.Cell, Prefix: p.String(), After: []byte(after), Session: uint64(of), Most: pageLength(most)})
		part, next = page, string(mark)
		return err
	})
	return part, next, err
}

func pageLength(most int) uint32 { return uint32(min(max(most, 0), api.MaxPage)) }

func askLocks(ctx context.Context, t *target, q *chubbypb.ListLocksRequest) (page []LockInfo, next []byte, err error) {
	reply, err := t.data.chubby.ListLocks(ctx, q)
	for _, l := range reply.GetLocks() {
		page = append(page, lockInfo(l))
	}
	return page, reply.GetNext(), err
}

func lockInfo(l *chubbypb.LockInfo) LockInfo {
	info := LockInfo{
		Path: l.GetPath(), Mode: api.LockMode(l.GetMode()), Generation: api.Generation(l.GetGeneration()),
		Holders: chubbypb.Holders(l.GetHolders()), Delayed: time.Duration(l.GetDelayedNs()), Revoked: l.GetRevoked(),
		MoreHolders: int(l.GetMoreHolders()), MoreWaiters: int(l.GetMoreWaiters()),
	}
	for _, w := range l.GetWaiters() {
		info.Waiters = append(info.Waiters, Waiter{
			Holder: w.GetParty().Holder(), Place: int(w.GetPlace()), Mode: api.LockMode(w.GetMode()),
			Waiting: time.Duration(w.GetWaitingNs()), Estimate: time.Duration(w.GetEstimateNs()), Absent: w.GetAbsent(),
		})
	}
	return info
}

// Sessions lists the sessions of the cell, by id. EachSession needs less memory. Where clients identify
// themselves, the list has only the sessions of the client's own principal, unless that is an operator.
func (c *Cell) Sessions(ctx context.Context) ([]SessionInfo, error) {
	return collectPages(c.EachSession(ctx))
}

// EachSession yields the sessions of the cell, by id. An error is the last item.
func (c *Cell) EachSession(ctx context.Context) iter.Seq2[SessionInfo, error] {
	return sessionPages(ctx, c, 0)
}

// FindSession returns one session, and whether it exists.
func (c *Cell) FindSession(ctx context.Context, id api.SessionID) (info SessionInfo, found bool, err error) {
	for s, err := range sessionPages(ctx, c, id) {
		if err != nil || s.Session == id { // an earlier master lists all
			return s, err == nil, err
		}
	}
	return SessionInfo{}, false, nil
}

func sessionPages(ctx context.Context, c *Cell, only api.SessionID) iter.Seq2[SessionInfo, error] {
	return eachPage(ctx, c, "list sessions", rootPath(c.cfg), func(ctx context.Context, t *target, after []byte) (page []SessionInfo, next []byte, err error) {
		return askSessions(ctx, t, &chubbypb.ListSessionsRequest{Cell: c.cfg.Cell, After: after, Session: uint64(only)})
	})
}

// SessionsPage is for Sessions what LocksPage is for Locks.
func (c *Cell) SessionsPage(ctx context.Context, after string, most int) (part []SessionInfo, next string, err error) {
	err = c.ask(ctx, "list sessions", rootPath(c.cfg), func(ctx context.Context, t *target) error {
		page, mark, err := askSessions(ctx, t, &chubbypb.ListSessionsRequest{Cell: c.cfg.Cell, After: []byte(after), Most: pageLength(most)})
		part, next = page, string(mark)
		return err
	})
	return part, next, err
}

func askSessions(ctx context.Context, t *target, q *chubbypb.ListSessionsRequest) (page []SessionInfo, next []byte, err error) {
	reply, err := t.data.chubby.ListSessions(ctx, q)
	for _, s := range reply.GetSessions() {
		page = append(page, SessionInfo{
			Holder: s.GetParty().Holder(), Lease: time.Duration(s.GetLeaseNs()), LeftLeast: time.Duration(s.GetLeftLeastNs()),
			LeftMost: time.Duration(s.GetLeftMostNs()), Handles: int(s.GetHandles()), Locks: int(s.GetLocks()), MayCache: s.GetMayCache(), Unheard: s.GetUnheard(),
		})
	}
	return page, reply.GetNext(), err
}
