package client

import (
	"context"
	"sync"

	"github.com/chubbylock/chubby/api/chubbypb"
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
