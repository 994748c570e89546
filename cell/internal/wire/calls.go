package wire

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// These functions find the master and the caller, and complete the error. A handler only decodes, makes one
// call of the master, and encodes.

// subject is what a call concerns. Its error names it.
type subject struct {
	path string        // for display; "" if unknown or absent
	node namespace.Ref // for a call on a handle

	named *master.Named // for a call of a session that names a path, whether or not a node exists
}

// serve serves a call. handle may fill in about.
func serve[R any](s *service, op string, about *subject, handle func(*master.Master) (*R, error)) (*R, error) {
	m, err := s.cfg.Replica.Master()
	if err != nil {
		return nil, s.complete(nil, op, about, err)
	}
	reply, err := handle(m)
	if err != nil {
		return nil, s.complete(m, op, about, err)
	}
	return reply, nil
}

// onMaster serves a call without a session. on is what the call concerns, for display.
func onMaster[R any](s *service, op, on string, handle func(*master.Master) (*R, error)) (*R, error) {
	return serve(s, op, &subject{path: on}, handle)
}

// inSession serves a call of a live session, in this epoch.
func inSession[R any](s *service, op string, about *subject, c *pb.Caller, handle func(*master.Master, master.Caller) (*R, error)) (*R, error) {
	return serve(s, op, about, func(m *master.Master) (*R, error) {
		who, err := s.callerOf(m, c)
		if err == nil {
			err = m.Sessions.Admit(who)
		}
		if err != nil {
			return nil, err
		}
		return handle(m, who)
	})
}

type handleRequest interface {
	GetCaller() *pb.Caller
	GetHandle() []byte
}

// onHandle serves a call on a handle of a live session, in this epoch.
func onHandle[R any](s *service, op string, q handleRequest, handle func(*master.Master, master.Handle) (*R, error)) (*R, error) {
	about := &subject{}
	return inSession(s, op, about, q.GetCaller(), func(m *master.Master, who master.Caller) (*R, error) {
		h, err := s.handleOf(m, who, q.GetHandle())
		if err != nil {
			return nil, err
		}
		about.path, about.node = m.Path(h.Node.Name), h.Node
		return handle(m, h)
	})
}

// complete is the only place that adds to an error what the package comment says. m is nil if no master was
// asked. It copies: many calls return the same error when an epoch ends.
func (s *service) complete(m *master.Master, op string, about *subject, err error) error {
	if err == nil {
		return nil
	}
	if m != nil {
		err = m.Locks.Explain(about.node, err)
	}
	if about.named != nil {
		err = m.Inspector.Withhold(*about.named, err)
	}
	told := &api.Error{Code: api.CodeOf(err), Message: err.Error(), Err: err}
	if e := (*api.Error)(nil); errors.As(err, &e) {
		whole := *e
		told = &whole
	}
	told.Op, told.Replica, told.Path = op, s.cfg.ID, cmp.Or(told.Path, about.path)
	if len(told.Path) > api.MaxPath { // do not echo a long path
		told.Path = fmt.Sprintf("%.80s…", told.Path)
	}
	return told
}

// fail is complete for a call that failed before any master was asked.
func (s *service) fail(op string, err error) error { return s.complete(nil, op, &subject{}, err) }

// callerOf reads the caller, without a check of its epoch.
func (s *service) callerOf(m *master.Master, c *pb.Caller) (master.Caller, error) {
	tokens, token := signerOf(m), c.GetSession()
	id, known := s.sessions.get(tokens.secret, token)
	if !known {
		var err error
		if id, err = tokens.parseSession(token); err != nil {
			return master.Caller{}, err
		}
		s.sessions.put(tokens.secret, token, id)
	}
	return master.Caller{Session: id, Epoch: api.Epoch(c.GetEpoch())}, nil
}

func (s *service) handleOf(m *master.Master, who master.Caller, token []byte) (master.Handle, error) {
	tokens := signerOf(m)
	h, known := s.handles.get(tokens.secret, token)
	if !known {
		var err error
		if h, err = tokens.parseHandle(token); err != nil {
			return master.Handle{}, err
		}
		s.handles.put(tokens.secret, token, h)
	}
	if h.Owner.Session != who.Session {
		//mutant: return master.Handle{}, api.Errorf(api.BadHandle, "the handle is of another session") //by TestRefusalsTellNotWhatIsThere of ./cell
		return master.Handle{}, noHandle()
	}
	return h, nil
}

// mutationOf reads the numbering of a session's change. It hashes parts, the content of the request, so that no
// number is used for two requests.
func mutationOf(id api.SessionID, m *pb.Mutation, parts ...[]byte) (session.Mutation, error) {
	mutation := session.Mutation{Session: id, Number: api.RequestNumber(m.GetNumber()), HighestIssued: api.RequestNumber(m.GetHighestIssued())}
	for _, n := range m.GetOutstanding() {
		mutation.Outstanding = append(mutation.Outstanding, api.RequestNumber(n))
	}
	sum, table := uint64(1), crc64.MakeTable(crc64.ECMA) // computed once
	for _, part := range parts {
		sum = crc64.Update(sum+uint64(len(part)), table, part)
	}
	mutation.Hash = max(sum, 1)
	return mutation, mutation.Validate()
}

// number is for a request's hash.
func number(n *uint64) []byte {
	if n == nil {
		return nil
	}
	return binary.BigEndian.AppendUint64(nil, *n)
}

// flag is for a request's hash.
func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func generation(g *uint64) *api.Generation {
	if g == nil {
		return nil
	}
	wanted := api.Generation(*g)
	return &wanted
}

// checkReason checks the reason that is given to a client that loses something.
func checkReason(text string) error {
	if text == "" || len(text) > api.MaxReason || !utf8.ValidString(text) {
		return api.Errorf(api.InvalidArgument, "the reason must be UTF-8 of 1 to %d bytes: whoever loses something is told", api.MaxReason)
	}
	return nil
}

// checkCell returns an error for another cell's name. "local" names every cell.
func (s *service) checkCell(name string) error {
	if name == s.cfg.Cell || name == api.LocalCell || name == "" {
		return nil
	}
	return &api.Error{
		Code: api.WrongCell, Cell: s.cfg.Cell,
		Message: fmt.Sprintf("this replica belongs to cell %s, not to %.80s; check --servers, CHUBBY_CELLS or the cells file", s.cfg.Cell, name),
	}
}

// pathOf reads a path in this cell. A path in "local" must also fit with the cell's own name, which replies and
// events use.
func (s *service) pathOf(text string) (api.Path, error) {
	path, err := api.ParsePath(text)
	if err == nil {
		err = s.checkCell(path.Cell())
	}
	if err == nil && path.Cell() != s.cfg.Cell {
		_, err = path.Name().In(s.cfg.Cell)
	}
	return path, err
}

// most returns the maximum of entries on a page; 0 if the request sets none.
func (s *service) nodeAt(ctx context.Context, m *master.Master, text string) (namespace.Ref, error) {
	path, err := s.pathOf(text)
	if err != nil {
		return namespace.Ref{}, err
	}
	return m.Inspector.NodeAt(ctx, path)
}
