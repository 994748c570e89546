package client

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/misuse"
)

// Lint asks the master which clients misuse the cell (Chubby §4.5). Where clients identify themselves,
// operators see everything; others see their own sessions, and the misuse of nodes that they may read,
// without others' names.
func (c *Cell) Lint(ctx context.Context, o misuse.Options) (misuse.Report, error) {
	q := &chubbypb.LintRequest{
		Cell: c.cfg.Cell, Path: o.Path, Session: uint64(o.Session), Principal: o.Principal, Most: uint32(min(max(o.Most, 0), api.MaxListed)),
	}
	for _, kind := range o.Kinds {
		q.Kinds = append(q.Kinds, uint32(kind))
	}
	var r misuse.Report
	err := c.ask(ctx, "lint", rootPath(c.cfg), func(ctx context.Context, t *target) error {
		reply, err := t.data.chubby.Lint(ctx, q)
		r = misuse.Report{Epoch: api.Epoch(reply.GetEpoch()), Since: time.Duration(reply.GetSinceNs()), More: int(reply.GetMore())}
		for _, f := range reply.GetFindings() {
			r.Findings = append(r.Findings, misuse.Finding{
				Kind: misuse.Kind(min(f.GetKind(), 255)), Who: f.GetParty().Holder(), Path: f.GetPath(), Count: int(f.GetCount()), Share: f.GetShare(),
				Measured: time.Duration(f.GetMeasuredNs()), Lease: time.Duration(f.GetLeaseNs()),
			})
		}
		return err
	})
	return r, err
}
