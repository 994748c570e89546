package console

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// pager says which rows of a listing a page shows, and how to come to others. A listing comes from the cell in parts, each of
// which is shown on several pages.
type pager struct {
	after string // the mark of the part
	row   int    // the first row that is shown, of the part

	First, Next string // addresses; empty if there is none
	From        int    // the number of the first row that is shown, if it is known: of the first part alone
}

// pagerOf reads where a page of a listing begins.
func pagerOf(q *http.Request) (pager, error) {
	values := q.URL.Query()
	after, err := base64.RawURLEncoding.DecodeString(values.Get("after"))
	p := pager{after: string(after)}
	if row := values.Get("row"); err == nil && row != "" {
		p.row, err = strconv.Atoi(row)
	}
	if err != nil || p.row < 0 {
		return pager{}, api.Errorf(api.InvalidArgument, "the address of the page is damaged: begin at the first page")
	}
	return p, nil
}

// cut returns the rows of a part that a page shows.
func cut[T any](p *pager, q *http.Request, part []T, next string) []T {
	at := func(after string, row int) string {
		values := url.Values{}
		for name, texts := range q.URL.Query() {
			if name != "after" && name != "row" && name != "done" {
				values[name] = texts
			}
		}
		if after != "" {
			values.Set("after", base64.RawURLEncoding.EncodeToString([]byte(after)))
		}
		if row > 0 {
			values.Set("row", strconv.Itoa(row))
		}
		if len(values) == 0 {
			return q.URL.Path
		}
		return q.URL.Path + "?" + values.Encode()
	}
	first := min(p.row, len(part))
	last := min(first+maxRows, len(part))
	if p.after != "" || first > 0 {
		p.First = at("", 0)
	}
	switch {
	case last < len(part):
		p.Next = at(p.after, last)
	case next != "":
		p.Next = at(next, 0)
	}
	return part[first:last]
}

// lockPage lists locks.
type lockPage struct {
	Now   int64
	Under string
	Locks []lockRow
	Pager pager
}

// lockRow is a lock in a list.
type lockRow struct {
	client.LockInfo
	Longest time.Duration // that somebody has waited
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

// Waiting is how many wait for the lock.
func (r lockRow) Waiting() int { return len(r.Waiters) + r.MoreWaiters }

// State says in one word how it is with the lock.
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
	var err error
	if content.Pager, err = pagerOf(q); err != nil {
		return "locks", p, err
	}
	part, next, err := v.cell.LocksPage(ctx, under, content.Pager.after)
	content.Locks = rowsOf(cut(&content.Pager, q, part, next))
	return "locks", p, err
}
