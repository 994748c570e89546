package console

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

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
	t.Children, err = list(&t.Pager, q, func(after string) (part []api.Stat, next string, err error) {
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
