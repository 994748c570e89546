package client

import (
	"context"
	"fmt"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/misuse"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// debugParts are the parts of a replica's report, in order: its metrics, the stacks of its goroutines, the
// last lines of its log, and its configuration, without secrets.
func debugParts() []string { return []string{"metrics", "goroutines", "log", "config"} }

// DebugPart is a part of a replica's report.
type DebugPart struct {
	Replica string // its id, or, without an answer, its address
	Name    string // one of debugParts
	Text    []byte
	Cut     bool  // earlier text was cut off
	Err     error // why it is missing
}

// Debug asks every replica for a report of a fault, as an operator's act. It needs no master. Each replica
// has Config.DialTimeout for each part; Debug fails only if no replica answers.
func Debug(ctx context.Context, c *Cell) ([]DebugPart, error) {
	s, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	parts := make([]DebugPart, 0, len(s.Replicas)*len(debugParts()))
	for _, r := range s.Replicas {
		for _, name := range debugParts() {
			one := DebugPart{Replica: r.ID, Name: name, Err: r.Err}
			if one.Replica == "" {
				one.Replica = r.Client
			}
			parts = append(parts, one)
		}
	}
	var asked sync.WaitGroup
	for i, r := range s.Replicas {
		if r.Err == nil {
			asked.Go(func() {
				for n := range debugParts() {
					parts[i*len(debugParts())+n].ask(ctx, c, r.Client)
				}
			})
		}
	}
	asked.Wait()
	return parts, nil
}

func (p *DebugPart) ask(ctx context.Context, c *Cell, address string) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	t, giveBack, err := c.pool.borrow(address)
	if err != nil {
		p.Err = err
		return
	}
	defer giveBack()
	reply, err := t.data.cell.Debug(ctx, &chubbypb.DebugRequest{Part: p.Name, As: c.cfg.As})
	p.Text, p.Cut, p.Err = reply.GetText(), reply.GetCut(), withoutCause(t.explainError(err))
}

// Identity is a client's identity as the cell sees it.
type Identity struct {
	// Principal is the name that the cell has found in the client's proof. It is empty where clients do not
	// identify themselves: there a session has the principal of Config.As, if the cell believes it, or else
	// "anonymous".
	Principal string
	// By is the client's proof: "certificate" or "token"; else empty.
	By string
}

// Identify asks the master for the client's identity. The errors are Unauthenticated if the client's proof
// does not count, and Unavailable. A cell of version 0.1.0 identifies no client.
func Identify(ctx context.Context, c *Cell) (Identity, error) {
	var id Identity
	err := c.ask(ctx, "identify", rootPath(c.cfg), func(ctx context.Context, t *target) error {
		reply, err := t.data.cell.Authenticate(ctx, &chubbypb.AuthenticateRequest{})
		id.Principal = reply.GetPrincipal()
		if status.Code(err) == codes.Unimplemented {
			return nil
		}
		return err
	})
	if err != nil {
		return Identity{}, err
	}
	switch e := c.pool.encryption; {
	case e == nil:
	case e.credentials != nil:
		id.By = "token"
	default:
		id.By = "certificate"
	}
	return id, nil
}

// Records of package api, under the names that they had in v0.1.0.
type (
	// LockInfo is a lock of a listing.
	LockInfo = api.LockInfo
	// Waiter is a request that waits for a lock.
	Waiter = api.Waiter
	// Explanation is what an operation on a node would wait for.
	Explanation = api.Explanation
	// Cacher is a session that may cache a node.
	Cacher = api.Cacher
	// SessionInfo is a session of a listing.
	SessionInfo = api.SessionInfo
	// QuotaUse is a quota and what is used of it.
	QuotaUse = api.QuotaUse
	// Status is the state of a cell.
	Status = api.Status
	// ReplicaStatus is the state of a replica.
	ReplicaStatus = api.ReplicaStatus
	// Member is a member of a cell.
	Member = api.Member
	// Upgrade is how far an upgrade is.
	Upgrade = api.Upgrade
	// MemberLevel is what level a member has.
	MemberLevel = api.MemberLevel
)

// Explain names the holders and waiters of a node's lock, and the sessions that may cache the node, and says,
// in sentences, what an operation on it would wait for. Where clients identify themselves, it takes the right
// to read the node, or to be an operator.
func (c *Cell) Explain(ctx context.Context, path string) (Explanation, error) {
	p, err := c.parsePath("explain", path)
	if err != nil {
		return Explanation{}, err
	}
	var x Explanation
	err = c.ask(ctx, "explain", path, func(ctx context.Context, t *target) error {
		reply, err := t.data.chubby.Explain(ctx, &chubbypb.ExplainRequest{Cell: c.cfg.Cell, Path: p.String()})
		x = chubbypb.Record[Explanation](reply)
		return err
	})
	return x, err
}

// History returns the holders of a node's lock, past and present: from when to when, and why each holding
// ended. See api.History.Overlap. It takes the right that Explain takes. The errors are NotFound for an absent
// node, and Unavailable before the cell's upgrade to feature level 3 is finished.
func (c *Cell) History(ctx context.Context, path string) (api.History, error) {
	p, err := c.parsePath("history", path)
	if err != nil {
		return api.History{}, err
	}
	var h api.History
	err = c.ask(ctx, "history", path, func(ctx context.Context, t *target) error {
		reply, err := t.data.chubby.History(ctx, &chubbypb.HistoryRequest{Cell: c.cfg.Cell, Path: p.String()})
		h = reply.History()
		return err
	})
	h.Path = p.String()
	return h, err
}

// Overview returns the cell's work, and its longest waits. The parameter most limits the locks, and the
// changes, up to api.MaxListed; 0 is 20. Where clients identify themselves, it lists what the client may
// read, and the numbers of the whole cell are for operators.
func (c *Cell) Overview(ctx context.Context, most int) (api.Overview, error) {
	var o api.Overview
	err := c.ask(ctx, "overview", rootPath(c.cfg), func(ctx context.Context, t *target) error {
		reply, err := t.data.chubby.Overview(ctx, &chubbypb.OverviewRequest{Cell: c.cfg.Cell, Most: uint32(min(max(most, 0), api.MaxListed))})
		o = chubbypb.Record[api.Overview](reply)
		return err
	})
	return o, err
}

// Lint asks the master which clients misuse the cell (Chubby §4.5). Where clients identify themselves,
// operators see everything; others see their own sessions, and the misuse of nodes that they may read,
// without others' names.
func (c *Cell) Lint(ctx context.Context, o misuse.Options) (misuse.Report, error) {
	o.Most = min(max(o.Most, 0), api.MaxListed)
	q := chubbypb.Message[chubbypb.LintRequest](o)
	q.Cell = c.cfg.Cell
	var r misuse.Report
	err := c.ask(ctx, "lint", rootPath(c.cfg), func(ctx context.Context, t *target) error {
		reply, err := t.data.chubby.Lint(ctx, q)
		r = chubbypb.Record[misuse.Report](reply)
		return err
	})
	return r, err
}

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
