package client

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/misuse"
)

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
