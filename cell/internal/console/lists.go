package console

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/misuse"
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

func askParts[T any](p *pager, q *http.Request, ask func(after string) (part []T, next string, err error)) (part []T, err error) {
	next := p.after
	for range maxAsked {
		if part, next, err = ask(next); err != nil || len(part) > 0 || next == "" {
			break
		}
	}
	if p.after != "" {
		p.First = withValue(q.URL, "after", "")
	}
	if next != "" {
		p.Next = withValue(q.URL, "after", base64.RawURLEncoding.EncodeToString([]byte(next)))
	}
	return part, err
}

// listing is a page of what may be more than one page shows.
type listing struct {
	Now   int64
	Rows  any
	Pager pager
}

// listPage fills in a page with a part of a listing, and returns how many rows it has.
func listPage[T any](ctx context.Context, content *listing, q *http.Request, ask func(ctx context.Context, after string, most int) ([]T, string, error)) (rows int, err error) {
	if content.Pager, err = pagerOf(q); err != nil {
		return 0, err
	}
	part, err := askParts(&content.Pager, q, func(after string) ([]T, string, error) { return ask(ctx, after, maxRows) })
	content.Rows = part
	return len(part), err
}

func (c *Console) sessions(ctx context.Context, v *visitor, q *http.Request, p *page) error {
	content := listing{Now: c.cfg.Wall()}
	p.Content = &content
	_, err := listPage(ctx, &content, q, v.cell.SessionsPage)
	return err
}

func quotas(ctx context.Context, v *visitor, q *http.Request, p *page) error {
	content := listing{}
	p.Content = &content
	_, err := listPage(ctx, &content, q, v.cell.QuotasPage)
	p.Operator = isOperator(ctx, v)
	return err
}

type lockPage struct {
	listing
	Under   string
	Missing bool // the node does not exist
}

func (c *Console) locks(ctx context.Context, v *visitor, q *http.Request, p *page) error {
	under := strings.TrimSpace(q.URL.Query().Get("under"))
	content := lockPage{listing: listing{Now: c.cfg.Wall()}, Under: under}
	p.Content = &content
	if under != "" {
		path, err := c.parsePath(under)
		if err != nil {
			return err
		}
		under = path.String()
		content.Under = under
	}
	rows, err := listPage(ctx, &content.listing, q, func(ctx context.Context, after string, most int) ([]client.LockInfo, string, error) {
		return v.cell.LocksPage(ctx, under, 0, after, most)
	})
	if err == nil && under != "" && rows == 0 {
		_, missing := v.cell.History(ctx, under)
		content.Missing = errors.Is(missing, api.NotFound)
	}
	return err
}

// oneSession is the page of a session: what it holds, and what waits for it.
type oneSession struct {
	Now      int64
	Session  client.SessionInfo
	Locks    []client.LockInfo
	More     int // further locks
	Holdups  []api.Holdup
	Partly   bool // some changes that wait for its cache may be missing
	Withheld bool // the visitor may see only that it exists
}

func (c *Console) oneSession(ctx context.Context, v *visitor, q *http.Request, p *page) error {
	id, err := sessionOf(q.PathValue("id"))
	if err != nil {
		return err
	}
	p.Title = "Session " + id.String()
	info, found, err := v.cell.FindSession(ctx, id)
	if err == nil && !found {
		err = api.Errorf(api.NotFound, "there is no session %v: it has ended, or never was", id)
	}
	if err != nil {
		return err
	}
	content := oneSession{Now: c.cfg.Wall(), Session: info, Withheld: info.Lease == 0}
	p.Content = &content
	locks, _, err := v.cell.LocksPage(ctx, "", id, "", maxRows)
	if err != nil {
		return err
	}
	content.Locks, content.More = locks, max(info.Locks-len(locks), 0)
	o, err := v.cell.Overview(ctx, api.MaxListed)
	if err != nil {
		return err
	}
	p.Operator = o.Whole
	content.Partly = o.MoreHoldups > 0
	for _, h := range o.Holdups {
		content.Partly = content.Partly || h.MoreSlow > 0
		if slices.ContainsFunc(h.Slow, func(s api.Holder) bool { return s.Session == id }) {
			content.Holdups = append(content.Holdups, h)
		}
	}
	return nil
}

// misusePage lists the clients that misuse the cell, by rule, like chubbyctl lint. The master decides what a
// visitor sees: operators see everything.
type misusePage struct {
	misuse.Report
	Broken [][]misuse.Finding // those of one kind together, the kind of the worst first
}

func (c *Console) misuse(ctx context.Context, v *visitor, _ *http.Request, p *page) (err error) {
	content := misusePage{}
	p.Content = &content
	content.Report, err = v.cell.Lint(ctx, misuse.Options{Most: maxRows})
	at := map[misuse.Kind]int{} // index of Broken
	for _, f := range content.Findings {
		i, ok := at[f.Kind]
		if !ok {
			i = len(content.Broken)
			at[f.Kind] = i
			content.Broken = append(content.Broken, nil)
		}
		content.Broken[i] = append(content.Broken[i], f)
	}
	return err
}

type treePage struct {
	Now      int64
	Stat     api.Stat
	Crumbs   []string // the path, and those above it
	Children []api.Stat
	Pager    pager // of the children
	Contents contents
}

func crumbs(p api.Path) []string {
	at := "/" + api.Root + "/" + p.Cell()
	list := []string{at}
	for name := range strings.SplitSeq(strings.TrimPrefix(p.String(), at), "/") {
		if name != "" {
			at += "/" + name
			list = append(list, at)
		}
	}
	return list
}

func (c *Console) tree(ctx context.Context, v *visitor, q *http.Request, p *page) error {
	path, err := c.parsePath(q.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	p.Title = path.String()
	content := treePage{Now: c.cfg.Wall(), Crumbs: crumbs(path)}
	p.Content = &content
	if content.Pager, err = pagerOf(q); err != nil {
		return err
	}
	return inSession(ctx, v, func(s *client.Client) error { return content.read(ctx, s, path, q) })
}

// read reads a node. The handle closes with its session.
func (t *treePage) read(ctx context.Context, s *client.Client, path api.Path, q *http.Request) error {
	h, err := s.Open(ctx, path.String(), client.OpenOptions{Read: true})
	if err != nil {
		return err
	}
	if t.Stat, err = h.Stat(ctx); err != nil {
		return err
	}
	if t.Stat.Kind != api.Directory {
		data, stat, err := h.Contents(ctx)
		t.Stat, t.Contents = stat, showContents(data)
		return err
	}
	t.Children, err = askParts(&t.Pager, q, func(after string) (part []api.Stat, next string, err error) {
		part, more, err := h.ReadDirPage(ctx, after, maxRows)
		if more {
			next = part[len(part)-1].Path.Base()
		}
		return part, next, err
	})
	return err
}

// parsePath reads a path as people type it, like chubbyctl; without /ls/CELL it is in this cell, and an empty
// one is its root.
func (c *Console) parsePath(text string) (api.Path, error) {
	text = strings.TrimSpace(text)
	below := strings.TrimSuffix(strings.TrimPrefix(text, "/"), "/")
	switch first, _, _ := strings.Cut(below, "/"); {
	case below == "":
		text = "/" + api.Root + "/" + c.cfg.Cell
	case first != api.Root:
		text = "/" + api.Root + "/" + c.cfg.Cell + "/" + below
	}
	return api.ParsePath(strings.TrimSuffix(text, "/"))
}

// explainPage says what an operation on a node would wait for.
type explainPage struct {
	Now         int64
	Path        string
	Explanation client.Explanation
	History     api.History
	NoHistory   string // why it is missing
	Asked       bool   // with a path
}

func (c *Console) explain(ctx context.Context, v *visitor, q *http.Request, p *page) error {
	content := explainPage{Now: c.cfg.Wall(), Asked: q.URL.Query().Get("path") != ""}
	p.Content = &content
	if !content.Asked {
		return nil
	}
	path, err := c.parsePath(q.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	content.Path, p.Title, p.Every = path.String(), path.String(), 2
	if content.Explanation, err = v.cell.Explain(ctx, path.String()); err != nil {
		return err
	}
	content.History, err = v.cell.History(ctx, path.String())
	switch {
	case errors.Is(err, api.NotFound):
		content.NoHistory = "There is no such node, so nobody holds its lock. The history of a node that was deleted went with it."
	case err != nil:
		content.NoHistory = err.Error()
	}
	p.Operator = isOperator(ctx, v)
	return nil
}

func sessionOf(text string) (api.SessionID, error) {
	number, err := strconv.ParseUint(strings.TrimPrefix(text, "s"), 10, 64)
	if err != nil || number == 0 {
		return 0, api.Errorf(api.InvalidArgument, "%.40q is no session: want a number, as in s17", text)
	}
	return api.SessionID(number), nil
}
