package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// QuotaUse is the use and the quota of one principal, or of one directory. For a directory only nodes and
// bytes count, and a quota of 0 is no limit.
type QuotaUse struct {
	Principal string    `json:"principal"`
	Path      string    `json:"path"` // of a directory; then Principal is empty
	Used      api.Quota `json:"used"`
	Allowed   api.Quota `json:"allowed"`
}

// Quotas lists the principals that use anything of the cell, and the directories that have a quota. Where
// clients identify themselves, it has only the client's own and those of readable directories, unless it is
// an operator.
func (c *Cell) Quotas(ctx context.Context) ([]QuotaUse, error) {
	return collectPages(quotaPages(ctx, c, &chubbypb.ListQuotasRequest{}))
}

// QuotasPage is for Quotas what LocksPage is for Locks.
func (c *Cell) QuotasPage(ctx context.Context, after string, most int) (part []QuotaUse, next string, err error) {
	err = c.ask(ctx, "list quotas", rootPath(c.cfg), func(ctx context.Context, t *target) error {
		page, mark, err := askQuotas(ctx, t, &chubbypb.ListQuotasRequest{Cell: c.cfg.Cell, After: []byte(after), Most: pageLength(most)})
		part, next = page, string(mark)
		return err
	})
	return part, next, err
}

// FindQuota returns the use and quota of a principal, even without use; or, if principal is empty, of a
// directory. It finds none if the directory has no quota, or the client may not see it, as in Quotas.
func (c *Cell) FindQuota(ctx context.Context, principal, path string) (use QuotaUse, found bool, err error) {
	if principal == "" {
		p, err := c.parsePath("list quotas", path)
		if err != nil {
			return use, false, err
		}
		path = p.String()
	} else {
		path = ""
	}
	for one, err := range quotaPages(ctx, c, &chubbypb.ListQuotasRequest{Principal: principal, Path: path}) {
		if err != nil || one.Principal == principal && one.Path == path { // an earlier master lists all
			return one, err == nil, err
		}
	}
	return use, false, nil
}

func quotaPages(ctx context.Context, c *Cell, about *chubbypb.ListQuotasRequest) iter.Seq2[QuotaUse, error] {
	return eachPage(ctx, c, "list quotas", rootPath(c.cfg), func(ctx context.Context, t *target, after []byte) (page []QuotaUse, next []byte, err error) {
		return askQuotas(ctx, t, &chubbypb.ListQuotasRequest{Cell: c.cfg.Cell, After: after, Principal: about.GetPrincipal(), Path: about.GetPath()})
	})
}

func askQuotas(ctx context.Context, t *target, q *chubbypb.ListQuotasRequest) (page []QuotaUse, next []byte, err error) {
	reply, err := t.data.chubby.ListQuotas(ctx, q)
	for _, one := range reply.GetQuotas() {
		page = append(page, QuotaUse{Principal: one.GetPrincipal(), Path: one.GetPath(), Used: quotaOf(one.GetUsed()), Allowed: quotaOf(one.GetAllowed())})
	}
	return page, reply.GetNext(), err
}

func quotaOf(a *chubbypb.QuotaAmounts) api.Quota {
	return api.Quota{
		Nodes: int(a.GetNodes()), Bytes: a.GetBytes(), Sessions: int(a.GetSessions()), Handles: int(a.GetHandles()), Waiters: int(a.GetWaiters()),
	}
}

// SetPrincipalQuota sets the joint quota of a principal's sessions; an amount of 0 is that of
// api.DefaultQuota. Use above the quota stays, and nothing can be added.
func (c *Client) SetPrincipalQuota(ctx context.Context, principal string, q api.Quota) error {
	op := "set the quota of " + principal
	if principal == "" || len(principal) > api.MaxPrincipal {
		return &api.Error{Code: api.InvalidArgument, Op: "set quota", Path: rootPath(c.cell.cfg),
			Message: fmt.Sprintf("the name of the principal is %d bytes long; want 1 to %d", len(principal), api.MaxPrincipal)}
	}
	return c.setQuota(ctx, op, rootPath(c.cell.cfg), q, &chubbypb.SetQuotaRequest{Principal: principal})
}

// SetDirectoryQuota limits the nodes, and bytes of contents, below a directory; 0 is no limit.
func (c *Client) SetDirectoryQuota(ctx context.Context, path string, nodes int, bytes int64) error {
	p, err := c.cell.parsePath("set quota", path)
	if err != nil {
		return err
	}
	if nodes < 0 || bytes < 0 {
		return &api.Error{Code: api.InvalidArgument, Op: "set quota", Path: path,
			Message: fmt.Sprintf("a quota of %d nodes and %d bytes is negative; 0 is no limit", nodes, bytes)}
	}
	return c.setQuota(ctx, "set quota", path, api.Quota{Nodes: nodes, Bytes: bytes}, &chubbypb.SetQuotaRequest{Path: p.String()})
}

func (c *Client) setQuota(ctx context.Context, op, path string, q api.Quota, whose *chubbypb.SetQuotaRequest) error {
	if err := q.Validate(); err != nil {
		return fmt.Errorf("%s %s: %w", op, path, err)
	}
	return c.mutate(ctx, mutation{op: op, path: path,
		send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			_, err := t.data.chubby.SetQuota(ctx, &chubbypb.SetQuotaRequest{
				Caller: caller, Mutation: m, Principal: whose.GetPrincipal(), Path: whose.GetPath(),
				Allowed: &chubbypb.QuotaAmounts{
					Nodes: int64(q.Nodes), Bytes: q.Bytes, Sessions: int64(q.Sessions), Handles: int64(q.Handles), Waiters: int64(q.Waiters),
				},
			})
			return err
		}})
}
