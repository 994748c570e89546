package client

import (
	"context"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// allQuotas lists the quotas of the cell, or one.
func allQuotas(c *Cell, principal, path string) listing[QuotaUse] {
	return listing[QuotaUse]{c, "list quotas", rootPath(c.cfg), func(ctx context.Context, t *target, after []byte, most uint32) ([]QuotaUse, []byte, error) {
		reply, err := t.data.chubby.ListQuotas(ctx, &chubbypb.ListQuotasRequest{Cell: c.cfg.Cell, After: after, Most: most, Principal: principal, Path: path})
		return chubbypb.Records[QuotaUse](reply.GetQuotas()), reply.GetNext(), err
	}, nil}
}

// Quotas lists the principals that use anything of the cell, and the directories that have a quota. Where
// clients identify themselves, it has only the client's own and those of readable directories, unless it is
// an operator.
func (c *Cell) Quotas(ctx context.Context) ([]QuotaUse, error) {
	return allQuotas(c, "", "").all(ctx)
}

// QuotasPage is for Quotas what LocksPage is for Locks.
func (c *Cell) QuotasPage(ctx context.Context, after string, most int) (part []QuotaUse, next string, err error) {
	return allQuotas(c, "", "").part(ctx, after, most)
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
	for one, err := range allQuotas(c, principal, path).each(ctx) {
		if err != nil || one.Principal == principal && one.Path == path { // an earlier master lists all
			return one, err == nil, err
		}
	}
	return use, false, nil
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

func (c *Client) setQuota(ctx context.Context, op, path string, q api.Quota, request *chubbypb.SetQuotaRequest) error {
	if err := q.Validate(); err != nil {
		return fmt.Errorf("%s %s: %w", op, path, err)
	}
	request.Allowed = chubbypb.Message[chubbypb.QuotaAmounts](q)
	return c.mutate(ctx, mutation{op: op, path: path,
		send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			request.Caller, request.Mutation = caller, m
			_, err := t.data.chubby.SetQuota(ctx, request)
			return err
		}})
}
