package client

import (
	"context"
	"sync"

	"github.com/chubbylock/chubby/api/chubbypb"
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
