package wire

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/misuse"
)

// These calls look at the cell, as its caller may see it.

// listing serves a page: look makes it, from a place on, and encode its reply, with the mark of the next.
func listing[R, T any](ctx context.Context, s *service, op, on string,
	q interface {
		GetCell() string
		GetAfter() []byte
	},
	look func(in *master.Inspector, after []byte) (master.Page[T], error), encode func(page []T, next []byte) *R,
) (*R, error) {
	return onMaster(s, op, on, func(m *master.Master) (*R, error) {
		if err := s.checkCell(q.GetCell()); err != nil {
			return nil, err
		}
		marks := marksOf(ctx, m, op)
		after, err := marks.placeOf(q.GetAfter())
		if err != nil {
			return nil, err
		}
		page, err := look(m.Inspector.For(principalOf(ctx)), after)
		if err != nil {
			return nil, err
		}
		next, err := marks.markOf(page.Next)
		return encode(page.List, next), err
	})
}

func (s chubbyService) ListLocks(ctx context.Context, q *pb.ListLocksRequest) (*pb.ListLocksReply, error) {
	return listing(ctx, s.service, "list locks", q.GetPrefix(), q, func(in *master.Inspector, after []byte) (master.Page[api.LockInfo], error) {
		prefix, err := s.belowOf(q.GetPrefix())
		if err != nil {
			return master.Page[api.LockInfo]{}, err
		}
		return in.ListLocks(ctx, prefix, api.SessionID(q.GetSession()), after, pageSize(q))
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
func (s chubbyService) Explain(ctx context.Context, q *pb.ExplainRequest) (*pb.ExplainReply, error) {
	return onMaster(s.service, "explain", q.GetPath(), func(m *master.Master) (*pb.ExplainReply, error) {
		path, err := s.pathOf(q.GetPath())
		if err != nil {
			return nil, err
		}
		e, err := m.Inspector.For(principalOf(ctx)).Explain(ctx, path.Name())
		return pb.Message[pb.ExplainReply](e), err
	})
}

func (s chubbyService) History(ctx context.Context, q *pb.HistoryRequest) (*pb.HistoryReply, error) {
	return onMaster(s.service, "history", q.GetPath(), func(m *master.Master) (*pb.HistoryReply, error) {
		path, err := s.pathOf(q.GetPath())
		if err != nil {
			return nil, err
		}
		h, err := m.Inspector.For(principalOf(ctx)).History(ctx, path)
		return pb.NewHistory(h), err
	})
}

// Overview reports the cell's work, and what waits longest.
func (s chubbyService) Overview(ctx context.Context, q *pb.OverviewRequest) (*pb.OverviewReply, error) {
	return onMaster(s.service, "overview", "", func(m *master.Master) (*pb.OverviewReply, error) {
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
func (s chubbyService) Lint(ctx context.Context, q *pb.LintRequest) (*pb.LintReply, error) {
	return onMaster(s.service, "lint", q.GetPath(), func(m *master.Master) (*pb.LintReply, error) {
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

func (s chubbyService) ListQuotas(ctx context.Context, q *pb.ListQuotasRequest) (*pb.ListQuotasReply, error) {
	return listing(ctx, s.service, "list quotas", "", q, func(in *master.Inspector, after []byte) (page master.Page[api.QuotaUse], err error) {
		switch {
		case q.GetPrincipal() != "":
			if err = CheckPrincipal(q.GetPrincipal()); err == nil {
				page, err = in.FindQuota(ctx, q.GetPrincipal(), "")
			}
		case q.GetPath() != "":
			var path api.Path
			if path, err = s.pathOf(q.GetPath()); err == nil {
				page, err = in.FindQuota(ctx, "", path.Name())
			}
		default:
			page, err = in.ListQuotas(ctx, after, pageSize(q))
		}
		return page, err
	}, func(page []api.QuotaUse, next []byte) *pb.ListQuotasReply {
		return &pb.ListQuotasReply{Quotas: pb.Messages[pb.QuotaInfo](page), Next: next}
	})
}

func (s chubbyService) ListSessions(ctx context.Context, q *pb.ListSessionsRequest) (*pb.ListSessionsReply, error) {
	return listing(ctx, s.service, "list sessions", "", q, func(in *master.Inspector, after []byte) (master.Page[api.SessionInfo], error) {
		return in.ListSessions(ctx, api.SessionID(q.GetSession()), after, pageSize(q))
	}, func(page []api.SessionInfo, next []byte) *pb.ListSessionsReply {
		return &pb.ListSessionsReply{Sessions: pb.Messages[pb.SessionInfo](page), Next: next}
	})
}

// Authenticate implements the RPC, the only one that unknown clients may call.
func (s cellService) Authenticate(ctx context.Context, q *pb.AuthenticateRequest) (*pb.AuthenticateReply, error) {
	conn := connOf(ctx)
	if q.GetToken() != "" {
		if err := conn.authenticate(ctx, q.GetToken()); err != nil {
			return nil, s.fail("authenticate", err)
		}
	}
	if err := conn.refused(); err != nil {
		return nil, s.fail("connect", err)
	}
	return &pb.AuthenticateReply{Principal: principalOf(ctx)}, nil
}

// Locate is served by every replica, from what it knows now.
func (s cellService) Locate(_ context.Context, q *pb.LocateRequest) (*pb.LocateReply, error) {
	if err := s.checkCell(q.GetCell()); err != nil {
		return nil, s.fail("locate", err)
	}
	l := s.cfg.Replica.Location()
	return &pb.LocateReply{
		Cell: s.cfg.Cell, CellId: string(l.CellID), Replica: s.cfg.ID, Epoch: l.Epoch, Master: l.Master, MasterAddress: l.Address, Servers: l.Servers,
		ServersVersion: l.ServersVersion,
	}, nil
}

func (s cellService) Status(context.Context, *pb.StatusRequest) (*pb.StatusReply, error) {
	is := s.cfg.Replica.Status()
	reply := pb.Message[pb.StatusReply](is)
	reply.Replica = pb.Message[pb.ReplicaStatus](is.Replicas[0])
	return reply, nil
}

func (s cellService) Members(context.Context, *pb.MembersRequest) (*pb.MembersReply, error) {
	list, err := s.cfg.Replica.Members()
	if err != nil {
		return nil, s.fail("members", err)
	}
	return &pb.MembersReply{Members: pb.Messages[pb.Member](list)}, nil
}

// A mark says where the next page of a listing begins: after a node, principal or session that the caller may
// have no right to see. So marks are encrypted with the cell's replicated secret, which any later master has.
// All have one length, and each is valid for one caller and one RPC.
//
//	markHead | nonce | AES-256-GCM(length of the place | place | zeros)

// markHead begins every mark. A master of v0.1.0, whose marks are not encrypted, reads it as the place before
// everything: it begins the listing again, and omits nothing.
const markHead = "\x01\x00"

// maxPlace is the maximum length of a place: the part of the listing, the depth, and the name of a node.
const maxPlace = 2 + api.MaxPath

type marks struct {
	secret []byte
	about  []byte // the caller and the RPC
}

func marksOf(ctx context.Context, m *master.Master, op string) marks {
	return marks{secret: m.State().Secret, about: []byte(op + "\x00" + principalOf(ctx))}
}

func (k marks) cipher() (cipher.AEAD, error) {
	key := hmac.New(sha256.New, k.secret)
	key.Write([]byte{pageMark})
	block, err := aes.NewCipher(key.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// markOf returns the mark of a place; nil for nil, which follows the last page.
func (k marks) markOf(place []byte) ([]byte, error) {
	if place == nil {
		return nil, nil
	}
	gcm, err := k.cipher()
	if err != nil {
		return nil, err
	}
	padded := append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+maxPlace), uint16(len(place))), place...)
	return gcm.Seal([]byte(markHead), nil, padded[:2+maxPlace], k.about), nil
}

// placeOf returns the place of a mark; nil for an empty mark, which requests the first page.
func (k marks) placeOf(mark []byte) ([]byte, error) {
	if len(mark) == 0 {
		return nil, nil
	}
	gcm, err := k.cipher()
	if err != nil {
		return nil, err
	}
	encrypted, ok := bytes.CutPrefix(mark, []byte(markHead))
	if ok {
		if padded, err := gcm.Open(nil, nil, encrypted, k.about); err == nil && len(padded) == 2+maxPlace {
			return padded[2 : 2+min(binary.BigEndian.Uint16(padded), maxPlace)], nil
		}
	}
	return nil, api.Errorf(api.InvalidArgument, "this cell has not given this caller that mark for this listing, or it was given by an earlier version: begin the listing again, without a mark")
}
