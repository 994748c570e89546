package wire

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"log/slog"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/loglimit"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Config configures a server for clients.
type Config struct {
	Cell    string // its name
	ID      string // of the replica
	Replica Replica
	Logger  *slog.Logger
	Audit   *audit.Log // nil: there is no audit log

	// Stopwatch measures how long calls take. It must be cheap. Answered requires it.
	Stopwatch func() time.Duration
	// Answered is called when a call has ended; trace is "" if it was not traced. nil: no call is counted.
	Answered func(method string, code api.Code, took time.Duration, trace string)
	Tracer   Tracer // nil: no call is traced

	InsecurePrincipals bool // accept a client's claim of its principal
}

// Replica is what the services need of their replica.
type Replica interface {
	// Master returns the replica's mastership, or the error that names the master.
	Master() (*master.Master, error)
	Location() Location
	// Status returns what this replica says of itself, in the only row, and of the cell. Only the master sets the numbers of
	// sessions, nodes and locks, and lists acts, but that of an outage, which the former master lists.
	Status() api.Status
	Members() ([]api.Member, error)
	// Counts returns what this replica has counted as master, by name; see api.Overview.
	Counts() map[string]uint64
	// Takeovers returns this replica's last take-overs, the latest first, at most eight.
	Takeovers() []api.Takeover
	// Transfer hands the mastership to a replica, "" for any. It returns the new master, "" if unknown.
	Transfer(ctx context.Context, to string) (master string, err error)
	// Vacate leaves the cell without a master until the outage is over or ctx ends. Then the others elect one.
	Vacate(ctx context.Context, m *master.Master, o Outage) error
	// Levels asks every member for the newest feature level that it supports.
	Levels(ctx context.Context) ([]api.MemberLevel, error)
	// Newcomer asks a joining replica for its identity and newest feature level.
	Newcomer(ctx context.Context, id, raft string) (one raftfsm.Member, maxLevel int, err error)
	// MayLeave returns an error if a replica cannot leave because too few others answer. joined says that
	// another one joins first.
	MayLeave(ctx context.Context, id string, joined bool) error
	// Debug returns a part of the replica's internal state, of any length, if the principal is an operator as
	// far as the replica knows.
	Debug(principal, part string) ([]byte, error)
	// Founders returns the replicas in Raft's configuration.
	Founders() []raftfsm.Member
}

// Outage is a time without a master that an operator requests.
type Outage struct {
	Length    time.Duration // before the other replicas can find out
	Reason    string
	Principal string // of the operator; "" if clients are not identified
}

// Location says where the master is, as far as this replica knows.
type Location struct {
	CellID  api.CellID
	Epoch   uint64
	Master  string // its id; empty if unknown
	Address string // where clients reach it
	Servers []string

	ServersVersion uint64 // of Servers; 0 if some may be missing
}

// Tracer begins traces of calls.
type Tracer interface {
	// Begin begins the trace of a call before it is served, or returns nil. method is the full name. parent is
	// the client's trace, in the form of W3C Trace Context if well-formed, or "".
	Begin(ctx context.Context, method, parent string) Trace
}

// Trace records a traced call.
type Trace interface {
	ID() string
	// Step records a part of the call that has ended.
	Step(s steps.Step)
	// End is called once, when the call is answered.
	End(about TraceSubject, code api.Code)
}

// TraceSubject is what a call concerns.
type TraceSubject struct {
	Session api.SessionID   // 0 without a session
	Request steps.RequestID // the client's id; 0 without one
	Path    string          // "" if unknown or absent
}

// service has what all calls need. They are methods of chubbyService and cellService: one only decodes, makes one call of
// the master, and encodes. The service finds the master and the caller, and completes the error.
type service struct {
	cfg     Config
	rpcs    map[string]rpc
	signer  atomic.Pointer[signer]
	owners  verified[string] // of sessions
	handles verified[master.Handle]
	refused loglimit.Refusals // calls without the right
	slow    loglimit.Refusals // slow calls
}

func newService(cfg Config) *service { return &service{cfg: cfg, rpcs: rpcs()} }

// chubbyService has the calls that the master serves.
type chubbyService struct {
	pb.UnsafeChubbyServer // so that the compiler names an unserved RPC
	*service
}

// cellService has the calls that every replica serves.
type cellService struct {
	pb.UnsafeCellServer
	*service
}

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
	id, err := s.signerOf(m).parseSession(c.GetSession())
	if err != nil {
		return master.Caller{}, err
	}
	return master.Caller{Session: id, Epoch: api.Epoch(c.GetEpoch())}, nil
}

func (s *service) handleOf(m *master.Master, who master.Caller, token []byte) (master.Handle, error) {
	tokens := s.signerOf(m)
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

func (s *service) ownerOf(m *master.Master, token []byte) (string, error) {
	tokens := s.signerOf(m)
	if owner, known := s.owners.get(tokens.secret, token); known {
		return owner, nil
	}
	id, err := tokens.parseSession(token)
	if err != nil {
		return "", err
	}
	owner, err := m.Sessions.Principal(id)
	if err != nil {
		return "", err
	}
	s.owners.put(tokens.secret, token, owner)
	return owner, nil
}

// whoCalls returns the principal of a call: that of its connection, else that of its session.
func (s *service) whoCalls(ctx context.Context, m *master.Master, request any) string {
	who := principalOf(ctx)
	if q, ok := request.(interface{ GetCaller() *pb.Caller }); who == "" && ok && m != nil {
		who, _ = s.ownerOf(m, q.GetCaller().GetSession())
	}
	if who == nobody {
		return ""
	}
	return who
}

// anonymous is the principal of a client without an identity.
const anonymous = "anonymous"

// principalAs returns the principal of a call without a session. It accepts a client's claim only with
// InsecurePrincipals.
func (s *service) principalAs(ctx context.Context, as string) (string, error) {
	known := principalOf(ctx)
	switch {
	case known != "" && as != "" && as != known:
		return "", api.Errorf(api.Unauthenticated, "the client says that it is %.40q (--as), and its certificate says %q", as, known)
	case known == "" && as != "" && !s.cfg.InsecurePrincipals:
		return "", api.Errorf(api.Unauthenticated, "this cell does not take a client's word for its principal (--as): its replicas would have to run with --insecure-principals")
	}
	is := cmp.Or(known, as, anonymous)
	return is, CheckPrincipal(is)
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

func (s *service) nodeAt(ctx context.Context, m *master.Master, text string) (namespace.Ref, error) {
	path, err := s.pathOf(text)
	if err != nil {
		return namespace.Ref{}, err
	}
	return m.Inspector.NodeAt(ctx, path)
}

// pageSize returns how many entries a page may have, by its request.
func pageSize(q interface{ GetMost() uint32 }) int { return int(min(q.GetMost(), api.MaxPage)) }
