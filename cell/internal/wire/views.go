package wire

import (
	"context"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/misuse"
)

// These calls look at the cell, as its caller may see it.

type listRequest interface {
	GetCell() string
	GetAfter() []byte
}

// most returns how many entries a page may have, by its request.
func most(q interface{ GetMost() uint32 }) int { return int(min(q.GetMost(), api.MaxPage)) }

// listing serves a page: look makes it, from a place on, and encode its reply, with the mark of the next.
func listing[R, T any](ctx context.Context, s *service, op, on string, q listRequest,
	look func(in *master.Inspector, after []byte) (master.Page[T], error), encode func(page []T, next []byte) *R,
) (*R, error) {
	return onMaster(s, op, on, func(m *master.Master) (*R, error) {
		if err := s.checkCell(q.GetCell()); err != nil {
			return nil, err
		}
		marks := marksOf(ctx, m, op)
		after, err := marks.open(q.GetAfter())
		if err != nil {
			return nil, err
		}
		page, err := look(m.Inspector.For(principalOf(ctx)), after)
		if err != nil {
			return nil, err
		}
		next, err := marks.seal(page.Next)
		return encode(page.List, next), err
	})
}

func (s *service) ListLocks(ctx context.Context, q *pb.ListLocksRequest) (*pb.ListLocksReply, error) {
	return listing(ctx, s, "list locks", q.GetPrefix(), q, func(in *master.Inspector, after []byte) (master.Page[api.LockInfo], error) {
		prefix, err := s.belowOf(q.GetPrefix())
		if err != nil {
			return master.Page[api.LockInfo]{}, err
		}
		return in.ListLocks(ctx, prefix, api.SessionID(q.GetSession()), after, most(q))
	}, func(page []api.LockInfo, next []byte) *pb.ListLocksReply {
		return &pb.ListLocksReply{Locks: pb.Messages[pb.LockInfo](page), Next: next}
	})
}

// belowOf returns the node at or below which a request looks; without a path, the root.
func (s *service) belowOf(path string) (api.Name, error) {
	if path == "" {
		return "", nil
	}
	p, err := s.pathOf(path)
	return p.Name(), err
}

// Explain says what an operation on a node would wait for, and why.
func (s *service) Explain(ctx context.Context, q *pb.ExplainRequest) (*pb.ExplainReply, error) {
	return onMaster(s, "explain", q.GetPath(), func(m *master.Master) (*pb.ExplainReply, error) {
		path, err := s.pathOf(q.GetPath())
		if err != nil {
			return nil, err
		}
		e, err := m.Inspector.For(principalOf(ctx)).Explain(ctx, path.Name())
		return pb.Message[pb.ExplainReply](e), err
	})
}

func (s *service) History(ctx context.Context, q *pb.HistoryRequest) (*pb.HistoryReply, error) {
	return onMaster(s, "history", q.GetPath(), func(m *master.Master) (*pb.HistoryReply, error) {
		path, err := s.pathOf(q.GetPath())
		if err != nil {
			return nil, err
		}
		h, err := m.Inspector.For(principalOf(ctx)).History(ctx, path)
		return pb.NewHistory(h), err
	})
}

// Overview reports the cell's work, and what waits longest.
func (s *service) Overview(ctx context.Context, q *pb.OverviewRequest) (*pb.OverviewReply, error) {
	return onMaster(s, "overview", "", func(m *master.Master) (*pb.OverviewReply, error) {
		if err := s.checkCell(q.GetCell()); err != nil {
			return nil, err
		}
		o, err := m.Inspector.For(principalOf(ctx)).Overview(ctx, int(min(q.GetMost(), 1<<16)))
		if o.Whole {
			o.Counts, o.Takeovers = s.cfg.Replica.Counts(), s.cfg.Replica.Takeovers()
		}
		return pb.Message[pb.OverviewReply](o), err
	})
}

// Lint reports what misuses the cell. Unknown kinds match nothing.
func (s *service) Lint(ctx context.Context, q *pb.LintRequest) (*pb.LintReply, error) {
	return onMaster(s, "lint", q.GetPath(), func(m *master.Master) (*pb.LintReply, error) {
		if err := s.checkCell(q.GetCell()); err != nil {
			return nil, err
		}
		below, err := s.belowOf(q.GetPath())
		if err != nil {
			return nil, err
		}
		const most = 256 // there are fewer kinds
		if n := len(q.GetKinds()); n > most {
			return nil, api.Errorf(api.InvalidArgument, "it asks for %d kinds; at most %d", n, most)
		}
		r, err := m.Lint(ctx, principalOf(ctx), below, pb.Record[misuse.Options](q))
		return pb.Message[pb.LintReply](r), err
	})
}
