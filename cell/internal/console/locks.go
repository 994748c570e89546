package console

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// pager is the place of a page in a listing, with the addresses of others.
type pager struct {
	after string // the mark of the page; empty for the first

	First, Next string // addresses; empty without such a page
}

func pagerOf(q *http.Request) (pager, error) {
	after, err := base64.RawURLEncoding.DecodeString(q.URL.Query().Get("after"))
	if err != nil {
		return pager{}, api.Errorf(api.InvalidArgument, "the address of the page is damaged: begin at the first page")
	}
	return pager{after: string(after)}, nil
}

// maxAsked is how often a page asks again because a part is empty although others follow, as in a cell with
// many nodes and few locks.
const maxAsked = 8

func list[T any](p *pager, q *http.Request, ask func(after string) (part []T, next string, err error)) (part []T, err error) {
	next := p.after
	for range maxAsked {
		if part, next, err = ask(next); err != nil || len(part) > 0 || next == "" {
			break
		}
	}
	if p.after != "" {
		p.First = withMark(q.URL, "")
	}
	if next != "" {
		p.Next = withMark(q.URL, next)
	}
	return part, err
}

func withMark(u *url.URL, after string) string {
	values := u.Query()
	values.Del("after")
	values.Del("done")
	if after != "" {
		values.Set("after", base64.RawURLEncoding.EncodeToString([]byte(after)))
	}
	if len(values) == 0 {
		return u.Path
	}
	return u.Path + "?" + values.Encode()
}

type lockPage struct {
	Now   int64
	Under string
	Locks []lockRow
	Pager pager

	Missing bool // the node does not exist
}

type lockRow struct {
	client.LockInfo
	Longest time.Duration // the longest wait for it
}

func rowOf(l client.LockInfo) lockRow {
	r := lockRow{LockInfo: l}
	for _, w := range l.Waiters {
		r.Longest = max(r.Longest, w.Waiting)
	}
	return r
}

func rowsOf(locks []client.LockInfo) []lockRow {
	rows := make([]lockRow, 0, len(locks))
	for _, l := range locks {
		rows = append(rows, rowOf(l))
	}
	return rows
}

// Waiting returns the number of waiters.
func (r lockRow) Waiting() int { return len(r.Waiters) + r.MoreWaiters }

// State returns the lock's state in one word.
func (r lockRow) State() string {
	switch {
	case r.Revoked != "":
		return "revoked"
	case len(r.Holders) > 0:
		return r.Mode.String()
	case r.Delayed > 0:
		return "delayed"
	}
	return "free"
}

func (c *Console) locks(ctx context.Context, v *visitor, q *http.Request) (string, page, error) {
	under := strings.TrimSpace(q.URL.Query().Get("under"))
	content := lockPage{Now: c.cfg.Wall(), Under: under}
	p := page{Title: "Locks", Nav: "locks", Every: 3, Content: &content}
	if under != "" {
		path, err := c.parsePath(under)
		if err != nil {
			return "locks", p, err
		}
		under = path.String()
		content.Under = under
	}
	var err error
	if content.Pager, err = pagerOf(q); err != nil {
		return "locks", p, err
	}
	part, err := list(&content.Pager, q, func(after string) ([]client.LockInfo, string, error) {
		return v.cell.LocksPage(ctx, under, 0, after, maxRows)
	})
	content.Locks = rowsOf(part)
	if err == nil && under != "" && len(part) == 0 {
		_, missing := v.cell.History(ctx, under)
		content.Missing = errors.Is(missing, api.NotFound)
	}
	return "locks", p, err
}
