package console

import (
	"context"
	"net/http"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

type sessionPage struct {
	Now      int64
	Sessions []client.SessionInfo
	Pager    pager
}

func (c *Console) sessions(ctx context.Context, v *visitor, q *http.Request) (string, page, error) {
	content := sessionPage{Now: c.cfg.Wall()}
	p := page{Title: "Sessions", Nav: "sessions", Every: 3, Content: &content}
	var err error
	if content.Pager, err = pagerOf(q); err != nil {
		return "sessions", p, err
	}
	content.Sessions, err = list(&content.Pager, q, func(after string) ([]client.SessionInfo, string, error) {
		return v.cell.SessionsPage(ctx, after, maxRows)
	})
	return "sessions", p, err
}

// oneSession is the page of a session: what it holds, and what waits for it.
type oneSession struct {
	Now      int64
	Session  client.SessionInfo
	Locks    []lockRow
	More     int // further locks
	Holdups  []client.Holdup
	Partly   bool // some changes that wait for its cache may be missing
	Operator bool
	Withheld bool // the visitor may see only that it exists
}

func (c *Console) oneSession(ctx context.Context, v *visitor, q *http.Request) (string, page, error) {
	p := page{Title: "Session", Nav: "sessions", Every: 2}
	id, err := sessionOf(q.PathValue("id"))
	if err != nil {
		return "session", p, err
	}
	p.Title = "Session " + id.String()
	info, found, err := v.cell.FindSession(ctx, id)
	if err == nil && !found {
		err = api.Errorf(api.NotFound, "there is no session %v: it has ended, or never was", id)
	}
	if err != nil {
		return "session", p, err
	}
	content := oneSession{Now: c.cfg.Wall(), Session: info, Withheld: info.Lease == 0}
	p.Content = &content
	locks, _, err := v.cell.LocksPage(ctx, "", id, "", maxRows)
	if err != nil {
		return "session", p, err
	}
	content.Locks, content.More = rowsOf(locks), max(info.Locks-len(locks), 0)
	o, err := v.cell.Overview(ctx, api.MaxListed)
	if err != nil {
		return "session", p, err
	}
	c.sawOverview(v, o)
	content.Operator = o.Whole
	content.Partly = o.MoreHoldups > 0
	for _, h := range o.Holdups {
		content.Partly = content.Partly || h.MoreSlow > 0
		if slices.ContainsFunc(h.Slow, func(s api.Holder) bool { return s.Session == id }) {
			content.Holdups = append(content.Holdups, h)
		}
	}
	return "session", p, nil
}
