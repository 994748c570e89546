package client

import (
	"context"
	"sync"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// debugParts are the parts of what each replica says of itself, in the order in which Debug asks for them: its metrics, the stacks of its
// goroutines, the last lines of its log, and its configuration, without secrets.
func debugParts() []string { return []string{"metrics", "goroutines", "log", "config"} }

// DebugPart is a part of what a replica says of itself.
type DebugPart struct {
	Replica string // its id; its address, if it did not answer
	Name    string // one of debugParts
	Text    []byte
	Cut     bool  // there was more before
	Err     error // why there is none
}

// Debug asks every replica of the cell for what it knows of itself, for a report of a fault, as an operator's act. It needs no master. Each
// replica has Config.DialTimeout for each part; it fails only if no replica answers at all.
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

// ask asks a replica for a part.
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
