package console

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// maxChildren is how many children a directory may have to be listed: its list comes as a whole.
const maxChildren = 20_000

// treePage shows a node.
type treePage struct {
	Now      int64
	Stat     api.Stat
	Crumbs   []crumb
	Children []api.Stat
	TooMany  bool
	Contents contents
	First    string // address of the first page of children
	Next     string
	From, To int
}

// crumb is a directory on the way to a node.
type crumb struct{ Name, Path string }

// crumbs returns the way from the root of a cell to a path.
func crumbs(p api.Path) []crumb {
	root := "/" + api.Root + "/" + p.Cell()
	list := []crumb{{root, root}}
	at := root
	for name := range strings.SplitSeq(strings.TrimPrefix(p.String(), root), "/") {
		if name != "" {
			at += "/" + name
			list = append(list, crumb{name, at})
		}
	}
	return list
}

func (c *Console) tree(ctx context.Context, v *visitor, q *http.Request) (string, page, error) {
	p := page{Title: "Tree", Nav: "tree"}
	path, err := c.pathOf(q)
	if err != nil {
		return "tree", p, err
	}
	p.Title = path.String()
	content := treePage{Now: c.cfg.Wall(), Crumbs: crumbs(path)}
	p.Content = &content
	row, err := strconv.Atoi("0" + q.URL.Query().Get("row"))
	if err != nil {
		return "tree", p, api.Errorf(api.InvalidArgument, "the address of the page is damaged: begin at the first page")
	}
	return "tree", p, inSession(ctx, v, func(s *client.Client) error { return content.read(ctx, s, path, row) })
}

// read reads a node. Its handle is closed with its session.
func (t *treePage) read(ctx context.Context, s *client.Client, path api.Path, row int) error {
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
	if t.Stat.Children > maxChildren {
		t.TooMany = true
		return nil
	}
	children, err := h.ReadDir(ctx)
	if err != nil {
		return err
	}
	first := min(row, len(children))
	last := min(first+maxRows, len(children))
	t.Children, t.From, t.To = children[first:last], first+1, last
	if first > 0 {
		t.First = pageURL("tree", "path", path.String())
	}
	if last < len(children) {
		t.Next = pageURL("tree", "path", path.String(), "row", strconv.Itoa(last))
	}
	return nil
}

// pathOf reads the path that a page is about; without one it is the root of the cell.
func (c *Console) pathOf(q *http.Request) (api.Path, error) {
	text := strings.TrimSpace(q.URL.Query().Get("path"))
	if text == "" {
		text = "/" + api.Root + "/" + c.cfg.Cell
	}
	return api.ParsePath(text)
}

// explainPage says what an operation on a node would wait for.
type explainPage struct {
	Now         int64
	Path        string
	Explanation client.Explanation
	Lock        lockRow
	History     client.History
	NoHistory   string // why there is none
	Operator    bool
	Asked       bool // a path was given
}

func (c *Console) explain(ctx context.Context, v *visitor, q *http.Request) (string, page, error) {
	content := explainPage{Now: c.cfg.Wall(), Asked: q.URL.Query().Get("path") != ""}
	p := page{Title: "Why does it wait?", Nav: "explain", Content: &content}
	if !content.Asked {
		return "explain", p, nil
	}
	path, err := c.pathOf(q)
	if err != nil {
		return "explain", p, err
	}
	content.Path, p.Title, p.Every = path.String(), "Why does "+path.String()+" wait?", 2
	if content.Explanation, err = v.cell.Explain(ctx, path.String()); err != nil {
		return "explain", p, err
	}
	content.Lock = rowOf(content.Explanation.Lock)
	if content.History, err = v.cell.History(ctx, path.String()); err != nil {
		content.NoHistory = err.Error()
	}
	content.Operator = c.isOperator(ctx, v)
	return "explain", p, nil
}
