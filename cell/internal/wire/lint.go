package wire

import (
	"context"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/misuse"
)

func (s *service) Lint(ctx context.Context, q *pb.LintRequest) (*pb.LintReply, error) {
	return onMaster(s, "lint", q.GetPath(), func(m *master.Master) (*pb.LintReply, error) {
		below, asked, err := s.lintOptions(q)
		if err != nil {
			return nil, err
		}
		r, err := m.Lint(ctx, principalOf(ctx), below, asked)
		if err != nil {
			return nil, err
		}
		reply := &pb.LintReply{Epoch: uint64(r.Epoch), SinceNs: int64(r.Since), More: uint32(r.More)}
		for _, f := range r.Findings {
			reply.Findings = append(reply.Findings, &pb.Finding{
				Kind: uint32(f.Kind), Party: pb.NewParty(f.Who), Path: f.Path, Count: uint64(f.Count), Share: f.Share,
				MeasuredNs: int64(f.Measured), LeaseNs: int64(f.Lease),
			})
		}
		return reply, nil
	})
}

// lintOptions decodes and checks the options, and the node at or below which to look. Unknown kinds match nothing.
func (s *service) lintOptions(q *pb.LintRequest) (below api.Name, o misuse.Options, err error) {
	o = misuse.Options{Path: q.GetPath(), Session: api.SessionID(q.GetSession()), Principal: q.GetPrincipal(), Most: int(min(q.GetMost(), 1<<16))}
	if err := s.checkCell(q.GetCell()); err != nil {
		return "", o, err
	}
	if o.Path != "" {
		path, err := s.pathOf(o.Path)
		if err != nil {
			return "", o, err
		}
		below = path.Name()
	}
	const most = 256 // there are fewer kinds
	if n := len(q.GetKinds()); n > most {
		return "", o, api.Errorf(api.InvalidArgument, "it asks for %d kinds; at most %d", n, most)
	}
	for _, number := range q.GetKinds() {
		o.Kinds = append(o.Kinds, misuse.Kind(min(number, 255)))
	}
	return below, o, nil
}
