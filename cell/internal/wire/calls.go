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

// Each call is served inside one of the functions below. They find the master and the
// caller, and complete the error, so that a handler only decodes, makes one call of the
// master, and encodes.

// subject is what a call is about. Its error says so.
type subject struct {
	path string        // for people; "" if it is not known, or there is none
	node namespace.Ref // of a call on a handle

	named *master.Named // of a call of a session that names a path, whatever there is
}

// serve serves a call. What it is about may become known while it is served.
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

// onMaster serves a call that belongs to no session. on is what it is about, for people.
func onMaster[R any](s *service, op, on string, handle func(*master.Master) (*R, error)) (*R, error) {
	return serve(s, op, &subject{path: on}, handle)
}

// inSession serves a call of a session that lives, in this epoch.
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

// handleRequest is a call on a handle.
type handleRequest interface {
	GetCaller() *pb.Caller
	GetHandle() []byte
}

// onHandle serves a call on a handle of a session that lives, in this epoch.
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

// complete is the one place where the error of a call gets what the package comment says
// that it has. m is nil where no master was asked. It copies: an epoch's end is one error
// that many calls return.
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
	if len(told.Path) > api.MaxPath { // it may not have been read yet: a refusal is no echo
		told.Path = fmt.Sprintf("%.80s…", told.Path)
	}
	return told
}

// fail is complete for a call that was refused before any master was asked.
func (s *service) fail(op string, err error) error { return s.complete(nil, op, &subject{}, err) }

// signerOf returns what makes and checks the tokens of a cell.
func signerOf(m *master.Master) signer { return signer{secret: m.Secret()} }

// callerOf reads who calls, without asking for the right epoch.
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

// handleOf reads a handle of the caller's.
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

// mutationOf reads the numbering of a session's change; parts is what is asked, so that
// a number cannot be used for two things.
func mutationOf(id api.SessionID, m *pb.Mutation, parts ...[]byte) (session.Mutation, error) {
	mutation := session.Mutation{Session: id, Number: api.RequestNumber(m.GetNumber()), HighestIssued: api.RequestNumber(m.GetHighestIssued())}
	for _, n := range m.GetOutstanding() {
		mutation.Outstanding = append(mutation.Outstanding, api.RequestNumber(n))
	}
	sum, table := uint64(1), crc64.MakeTable(crc64.ECMA) // which the package makes once
	for _, part := range parts {
		sum = crc64.Update(sum+uint64(len(part)), table, part)
	}
	mutation.Hash = max(sum, 1)
	return mutation, mutation.Validate()
}

// number writes an optional number for a request's hash.
func number(n *uint64) []byte {
	if n == nil {
		return nil
	}
	return binary.BigEndian.AppendUint64(nil, *n)
}

// flag writes a boolean for a request's hash.
func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// generation reads an optional generation.
func generation(g *uint64) *api.Generation {
	if g == nil {
		return nil
	}
	wanted := api.Generation(*g)
	return &wanted
}

// checkReason checks what is said to somebody who loses something.
func checkReason(text string) error {
	if text == "" || len(text) > api.MaxReason || !utf8.ValidString(text) {
		return api.Errorf(api.InvalidArgument, "the reason must be UTF-8 of 1 to %d bytes: whoever loses something is told", api.MaxReason)
	}
	return nil
}

// checkCell says that a call was meant for another cell; nil for this one's
// name, and for "local", by which every cell may be called.
func (s *service) checkCell(name string) error {
	if name == s.cfg.Cell || name == api.LocalCell || name == "" {
		return nil
	}
	return &api.Error{
		Code: api.WrongCell, Cell: s.cfg.Cell,
		Message: fmt.Sprintf("this replica belongs to cell %s, not to %.80s; check --servers, CHUBBY_CELLS or the cells file", s.cfg.Cell, name),
	}
}

// pathOf reads a path in this cell. One that names it "local" must not be too long with the cell's own name, by which
// answers, events and others name the node.
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

// most is how many entries a page of a listing should have at most; 0 if that was not said.
func most(q interface{ GetMost() uint32 }) int { return int(min(q.GetMost(), api.MaxPage)) }

// nodeAt finds the node that an operator names.
func (s *service) nodeAt(ctx context.Context, m *master.Master, text string) (namespace.Ref, error) {
	path, err := s.pathOf(text)
	if err != nil {
		return namespace.Ref{}, err
	}
	return m.Inspector.NodeAt(ctx, path)
}
