package cell_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// rpcRow says what the caller of an RPC needs: the answer without a session, and the answer to a
// session without rights.
type rpcRow struct {
	request  proto.Message // in order; the test adds the session, its handle, a number and another session
	nobody   api.Code
	stranger api.Code
}

// rpcRows has a row for each RPC.
func rpcRows() map[protoreflect.Name]rpcRow {
	return map[protoreflect.Name]rpcRow{
		"Locate":        {request: &pb.LocateRequest{}},
		"Status":        {request: &pb.StatusRequest{}},
		"Debug":         {request: &pb.DebugRequest{Part: "config"}, nobody: api.PermissionDenied, stranger: api.PermissionDenied},
		"Backup":        {request: &pb.BackupRequest{Part: 1}},
		"Authenticate":  {request: &pb.AuthenticateRequest{}},
		"Members":       {request: &pb.MembersRequest{}},
		"CreateSession": {request: &pb.CreateSessionRequest{Nonce: make([]byte, 16)}},
		"ListLocks":     {request: &pb.ListLocksRequest{}},
		"ListSessions":  {request: &pb.ListSessionsRequest{}},
		"ListQuotas":    {request: &pb.ListQuotasRequest{}},
		"Overview":      {request: &pb.OverviewRequest{}},
		"Lint":          {request: &pb.LintRequest{}},
		"Explain":       {request: &pb.ExplainRequest{Path: closedFile}},
		"History":       {request: &pb.HistoryRequest{Path: closedFile}},
		"CheckSequencer": {
			request: &pb.CheckSequencerRequest{Sequencer: "none"}, nobody: api.OK, stranger: api.OK,
		},

		"RenewCache":    {request: &pb.RenewCacheRequest{}, nobody: api.SessionExpired},
		"KeepAlive":     {request: &pb.KeepAliveRequest{}, nobody: api.SessionExpired},
		"KeepAlives":    {request: &pb.KeepAliveRequest{}, nobody: api.SessionExpired},
		"EndSession":    {request: &pb.EndSessionRequest{Reason: "a"}, nobody: api.SessionExpired, stranger: api.PermissionDenied},
		"Cancel":        {request: &pb.CancelRequest{}, nobody: api.SessionExpired},
		"Open":          {request: &pb.OpenRequest{Path: "/ls/local/new", Write: true, Create: pb.Create_CREATE_MUST}, nobody: api.SessionExpired, stranger: api.PermissionDenied},
		"BreakLock":     {request: &pb.BreakLockRequest{Path: closedFile, Reason: "a"}, nobody: api.SessionExpired, stranger: api.PermissionDenied},
		"SetQuota":      {request: &pb.SetQuotaRequest{Principal: "a", Allowed: &pb.QuotaAmounts{Nodes: 1}}, nobody: api.SessionExpired, stranger: api.PermissionDenied},
		"Transfer":      {request: &pb.TransferRequest{}, nobody: api.SessionExpired, stranger: api.PermissionDenied},
		"Restore":       {request: &pb.RestoreRequest{Begin: &pb.RestoreBegin{Cell: "local", CellId: strings.Repeat("0", 32)}}, nobody: api.SessionExpired, stranger: api.PermissionDenied},
		"ChangeMembers": {request: &pb.ChangeMembersRequest{Remove: "r1"}, nobody: api.SessionExpired, stranger: api.PermissionDenied},
		"FinishUpgrade": {request: &pb.FinishUpgradeRequest{}, nobody: api.SessionExpired, stranger: api.PermissionDenied},

		"Txn": {
			request: &pb.TxnRequest{
				Conditions: []*pb.TxnCondition{{Path: closedFile, Holds: &pb.TxnCondition_Exists{Exists: true}}},
				Operations: []*pb.TxnOperation{{Action: pb.TxnAction_TXN_ACTION_PUT, Path: closedFile, Contents: []byte("a")}},
			},
			nobody: api.SessionExpired, stranger: api.PermissionDenied,
		},

		"CloseHandle":        {request: &pb.CloseHandleRequest{}, nobody: api.SessionExpired},
		"GetContentsAndStat": {request: &pb.GetContentsAndStatRequest{}, nobody: api.SessionExpired, stranger: api.PermissionDenied},
		"GetStat":            {request: &pb.GetStatRequest{}, nobody: api.SessionExpired},
		"ReadDir":            {request: &pb.ReadDirRequest{}, nobody: api.SessionExpired, stranger: api.PermissionDenied},
		"SetContents":        {request: &pb.SetContentsRequest{Contents: []byte("a")}, nobody: api.SessionExpired, stranger: api.PermissionDenied},
		"SetACL":             {request: &pb.SetACLRequest{Acl: &pb.ACL{Read: "stranger"}}, nobody: api.SessionExpired},
		"Delete":             {request: &pb.DeleteRequest{}, nobody: api.SessionExpired, stranger: api.PermissionDenied},
		"Acquire":            {request: &pb.AcquireRequest{Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE}, nobody: api.SessionExpired, stranger: api.PermissionDenied},
		"TryAcquire":         {request: &pb.TryAcquireRequest{Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE}, nobody: api.SessionExpired, stranger: api.PermissionDenied},
		"Release":            {request: &pb.ReleaseRequest{Generation: 1}, nobody: api.SessionExpired, stranger: api.NotHeld},
		"GetSequencer":       {request: &pb.GetSequencerRequest{}, nobody: api.SessionExpired, stranger: api.NotHeld},
		"SetSequencer":       {request: &pb.SetSequencerRequest{Sequencer: "none"}, nobody: api.SessionExpired, stranger: api.BadSequencer},
	}
}

// Every RPC requires a session and rights, or its row says that it needs none.
func TestEveryRPCAsksForItsRights(t *testing.T) {
	rows := rpcRows()
	synctest.Test(t, func(t *testing.T) {
		w := startRights(t)
		for _, method := range calls() {
			name := method.Name()
			row, ok := rows[name]
			if !ok {
				t.Errorf("%s has no row in rpcRows: say there what its caller needs, and how strangers are answered", name)
				continue
			}
			delete(rows, name)
			if err := w.send(method, row.request, &pb.Caller{}, nil); api.CodeOf(pb.Error(err)) != row.nobody {
				t.Errorf("%s without a session: %v, want %s", name, err, row.nobody)
			}
			caller := w.session("stranger")
			handle := w.open(caller, &pb.OpenRequest{Path: handleFile, ChangeAcl: true})
			if err := w.send(method, row.request, caller, handle); api.CodeOf(pb.Error(err)) != row.stranger {
				t.Errorf("%s of a session without rights: %v, want %s", name, err, row.stranger)
			}
		}
	})
	for name := range rows {
		t.Errorf("rpcRows has a row for %s, but that RPC does not exist", name)
	}
}

// notAskedFor says why TestEveryFieldIsAskedFor leaves out some fields, of one RPC or of each that has them.
func notAskedFor() map[protoreflect.Name]string {
	const checkedFirst = "it is checked before the log is asked, and no other value passes here"
	return map[protoreflect.Name]string{
		"Open.directory":           checkedFirst,
		"Open.write":               checkedFirst,
		"Open.events":              checkedFirst,
		"Open.lock_delay_ns":       "the log does not know it: it is a part of the handle",
		"Open.cache_lock":          "the log does not know it, and masters of v0.1.0 neither: it is a part of the handle",
		"Open.no_cache":            "the log does not know it, and masters of v0.1.0 neither: it is a part of the handle",
		"CloseHandle.handle":       "a handle that holds nothing is closed without the log",
		"if_sequencer":             checkedFirst,
		"Release.sequencer_unread": "it changes nothing: it is only counted",
		"Acquire.ticket":           "a retry has the ticket that it was given meanwhile",
		"detect_deadlock":          "the log does not know it: it says how the master is to answer",
		"quiet":                    "the log does not know it: it says whom the master is to tell",
		"Acquire.waited_ns":        "the log does not know it: it is for people",
		"SetQuota.path":            checkedFirst,
		"ChangeMembers.add":        checkedFirst,
		"ChangeMembers.raft":       checkedFirst,
		"ChangeMembers.spare":      checkedFirst,
		"ChangeMembers.keep":       checkedFirst,
		"Restore.part":             checkedFirst,
		"Restore.seal":             checkedFirst,
		"Restore.finish":           checkedFirst,
		"Restore.give_up":          checkedFirst,
		"Restore.as":               "it counts only without a session",
	}
}

// A change that is sent again with another value in any field is refused: each field is part of the
// hash of the request. Otherwise a number could be used for two changes.
func TestEveryFieldIsAskedFor(t *testing.T) {
	exempt, used := notAskedFor(), map[protoreflect.Name]bool{}
	synctest.Test(t, func(t *testing.T) {
		w := startRights(t)
		for _, method := range calls() {
			row, ok := rpcRows()[method.Name()]
			fields := method.Input().Fields()
			if !ok || fields.ByName("mutation") == nil {
				continue
			}
			for i := range fields.Len() {
				field := fields.Get(i)
				name := method.Name() + "." + field.Name()
				used[name], used[field.Name()] = true, true
				if exempt[name]+exempt[field.Name()] != "" || field.Name() == "caller" || field.Name() == "mutation" {
					continue
				}
				if err := w.sendChanged(method, row.request, field); !strings.Contains(fmt.Sprint(err), "was used for something else before") {
					t.Errorf("a request with another %s is taken for a retry: %v; make it a part of what mutationOf hashes", name, err)
				}
			}
		}
	})
	for name := range exempt {
		failIf(t, !used[name], "notAskedFor names %s, and no request has such a field", name)
	}
}

// Every field of a step of a transaction is part of the hash, too.
func TestEveryFieldOfATxnIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startRights(t)
		caller := w.session("operator")
		steps := func() *pb.TxnRequest {
			return &pb.TxnRequest{
				Caller: caller, Mutation: &pb.Mutation{Number: w.number, HighestIssued: w.number, Outstanding: []uint64{w.number}},
				Conditions: []*pb.TxnCondition{{Path: closedFile, Holds: &pb.TxnCondition_Instance{Instance: 7}}},
				Operations: []*pb.TxnOperation{{Action: pb.TxnAction_TXN_ACTION_PUT, Path: closedFile, Contents: []byte("a")}},
			}
		}
		var sequencer string
		for what, edit := range map[string]func(q *pb.TxnRequest){
			"no condition":             func(q *pb.TxnRequest) { q.Conditions = nil },
			"the path of one":          func(q *pb.TxnRequest) { q.Conditions[0].Path = handleFile },
			"another instance":         func(q *pb.TxnRequest) { q.Conditions[0].Holds = &pb.TxnCondition_Instance{Instance: 8} },
			"a generation":             func(q *pb.TxnRequest) { q.Conditions[0].Holds = &pb.TxnCondition_Generation{Generation: 7} },
			"that it exists":           func(q *pb.TxnRequest) { q.Conditions[0].Holds = &pb.TxnCondition_Exists{Exists: true} },
			"a sequencer":              func(q *pb.TxnRequest) { q.Conditions[0].Holds = &pb.TxnCondition_Sequencer{Sequencer: sequencer} },
			"no operation":             func(q *pb.TxnRequest) { q.Operations = nil },
			"another action":           func(q *pb.TxnRequest) { q.Operations[0].Action = pb.TxnAction_TXN_ACTION_CREATE },
			"the path of an operation": func(q *pb.TxnRequest) { q.Operations[0].Path = handleFile },
			"other contents":           func(q *pb.TxnRequest) { q.Operations[0].Contents = []byte("b") },
			"a condition's place":      func(q *pb.TxnRequest) { q.Conditions = append(q.Conditions, q.Conditions[0]) },
		} {
			handle := w.open(caller, &pb.OpenRequest{Path: handleFile, Read: true, Write: true, Create: pb.Create_CREATE_MAY})
			if sequencer == "" {
				if _, err := w.TryAcquire(t.Context(), &pb.TryAcquireRequest{Caller: caller, Mutation: w.mutation(), Handle: handle, Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE}); err != nil {
					t.Fatal(err)
				}
				held := must(w.GetSequencer(t.Context(), &pb.GetSequencerRequest{Caller: caller, Handle: handle}))(t)
				sequencer = held.GetSequencer()
			}
			w.mutation()
			if _, err := w.Txn(t.Context(), steps()); api.CodeOf(pb.Error(err)) != api.GenerationMismatch {
				t.Fatal(err)
			}
			q := steps()
			edit(q)
			if _, err := w.Txn(t.Context(), q); !strings.Contains(fmt.Sprint(err), "was used for something else before") {
				t.Errorf("a request with %s is taken for a retry: %v", what, err)
			}
		}
	})
}

// sendChanged sends a request, and the same again with another value of a field. It returns the second answer.
func (w *program) sendChanged(method protoreflect.MethodDescriptor, request proto.Message, field protoreflect.FieldDescriptor) error {
	caller := w.session("stranger")
	handle := w.open(caller, &pb.OpenRequest{Path: handleFile, ChangeAcl: true})
	other := w.open(caller, &pb.OpenRequest{Path: handleFile, ChangeAcl: true, LockDelayNs: 1})
	request = w.filled(request, caller, handle, w.mutation())
	_, _ = w.invoke(method, request) // a refusal is an answer, too
	m := request.ProtoReflect()
	if field.Name() == "handle" {
		m.Set(field, protoreflect.ValueOfBytes(other))
	} else {
		change(m, field)
	}
	return pb.Error(errOf(w.invoke(method, request)))
}

// change gives a field of a message another value.
func change(m protoreflect.Message, field protoreflect.FieldDescriptor) {
	value := m.Get(field)
	if field.IsList() && field.Kind() == protoreflect.MessageKind { // of steps: one that it has, once more, of another node
		list := m.Mutable(field).List()
		another := list.AppendMutable().Message()
		proto.Merge(another.Interface(), list.Get(0).Message().Interface())
		change(another, another.Descriptor().Fields().ByName("path"))
		return
	}
	if field.IsList() { // of texts
		m.Mutable(field).List().Append(protoreflect.ValueOfString("x"))
		return
	}
	switch field.Kind() {
	case protoreflect.MessageKind:
		inner := m.Mutable(field).Message()
		change(inner, inner.Descriptor().Fields().Get(0))
	case protoreflect.BoolKind:
		m.Set(field, protoreflect.ValueOfBool(!value.Bool()))
	case protoreflect.EnumKind:
		m.Set(field, protoreflect.ValueOfEnum(value.Enum()%2+1))
	case protoreflect.StringKind:
		m.Set(field, protoreflect.ValueOfString(value.String()+"x"))
	case protoreflect.BytesKind:
		m.Set(field, protoreflect.ValueOfBytes(append(slices.Clone(value.Bytes()), 'x')))
	case protoreflect.Uint64Kind:
		m.Set(field, protoreflect.ValueOfUint64(value.Uint()+1))
	case protoreflect.Uint32Kind:
		m.Set(field, protoreflect.ValueOfUint32(uint32(value.Uint())+1))
	case protoreflect.Int64Kind:
		m.Set(field, protoreflect.ValueOfInt64(value.Int()+1))
	}
}

// The principal "stranger" has only one right, without which it could have no handle: to change the ACL of handleFile.
const (
	closedFile = "/ls/local/closed"
	handleFile = "/ls/local/f"
)

// program calls a replica over gRPC, without the library, which would look for the master and hide errors.
type program struct {
	pb.ChubbyClient
	t      *testing.T
	conn   *grpc.ClientConn
	number uint64     // of its last change
	who    *pb.Caller // the session of callerAs
	other  uint64     // the operator's session, after prepare
}

// connect connects a program with a replica; with secure nil nothing is encrypted.
func connect(t *testing.T, dial func(context.Context, string) (net.Conn, error), replica string, secure *tls.Config) *program {
	t.Helper()
	protect := insecure.NewCredentials()
	if secure != nil {
		protect = credentials.NewTLS(secure)
	}
	conn := must(grpc.NewClient("passthrough:///"+replica+":7421", grpc.WithTransportCredentials(protect), grpc.WithContextDialer(dial)))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return &program{t: t, conn: conn, ChubbyClient: pb.NewChubbyClient(conn)}
}

// callerAs connects a program with the master, with a session of that principal.
func callerAs(t *testing.T, c *celltest.Cell, principal string) *program {
	t.Helper()
	w := connect(t, c.DialFrom(principal), c.Master(), nil)
	w.who = w.session(principal)
	return w
}

// startRights starts a cell in which only the principal "operator" has rights, and connects with its master.
func startRights(t *testing.T) *program {
	t.Helper()
	w := connect(t, celltest.Start(t, 1).Dial, "r1", nil)
	w.prepare()
	return w
}

// prepare makes the files and their rights.
func (w *program) prepare() {
	t := w.t
	t.Helper()
	operator := w.session("operator")
	sessions := must(w.ListSessions(t.Context(), &pb.ListSessionsRequest{}))(t)
	w.other = sessions.GetSessions()[0].GetParty().GetSession()
	w.open(operator, &pb.OpenRequest{Path: closedFile, Write: true, Create: pb.Create_CREATE_MAY})
	w.open(operator, &pb.OpenRequest{Path: handleFile, Write: true, Create: pb.Create_CREATE_MAY})
	for _, who := range []string{"operator", "stranger"} {
		w.open(operator, &pb.OpenRequest{Path: "/ls/local/acl/" + who, Write: true, Create: pb.Create_CREATE_MAY, Contents: []byte(who + "\n")})
	}
	for path, change := range map[string]string{handleFile: "stranger", closedFile: "operator", "/ls/local": "operator"} {
		handle := w.open(operator, &pb.OpenRequest{Path: path, ChangeAcl: true})
		must(w.SetACL(t.Context(), &pb.SetACLRequest{
			Caller: operator, Mutation: w.mutation(), Handle: handle, Acl: &pb.ACL{Read: "operator", Write: "operator", Change: change},
		}))(t)
	}
}

// session opens a session.
func (w *program) session(principal string) *pb.Caller {
	w.t.Helper()
	s, err := w.CreateSession(w.t.Context(), &pb.CreateSessionRequest{Nonce: fmt.Appendf(nil, "%-8.8s%8d", principal, w.mutation().GetNumber()), LeaseNs: int64(api.MaxLease), As: principal})
	noErr(w.t, err)
	return &pb.Caller{Session: s.GetSession(), Epoch: s.GetEpoch()}
}

// open completes the request and returns the handle.
func (w *program) open(caller *pb.Caller, q *pb.OpenRequest) []byte {
	w.t.Helper()
	q.Caller, q.Mutation = caller, w.mutation()
	reply := must(w.Open(w.t.Context(), q))(w.t)
	return reply.GetHandle()
}

func (w *program) mutation() *pb.Mutation {
	w.number++
	return &pb.Mutation{Number: w.number, HighestIssued: w.number, Outstanding: []uint64{w.number}}
}

// send makes a call, with a new number.
func (w *program) send(method protoreflect.MethodDescriptor, request proto.Message, caller *pb.Caller, handle []byte) error {
	return errOf(w.invoke(method, w.filled(request, caller, handle, w.mutation())))
}

// invoke makes a call, ends it if it is a stream, and returns the first reply.
func (w *program) invoke(method protoreflect.MethodDescriptor, request proto.Message) (*dynamicpb.Message, error) {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	return invoke(ctx, w.conn, method, request)
}

// filled returns the request with those of the arguments for which it has a field.
func (w *program) filled(request proto.Message, caller *pb.Caller, handle []byte, mutation *pb.Mutation) proto.Message {
	request = proto.Clone(request)
	m := request.ProtoReflect()
	for name, value := range map[protoreflect.Name]protoreflect.Value{
		"caller":   protoreflect.ValueOfMessage(caller.ProtoReflect()),
		"mutation": protoreflect.ValueOfMessage(mutation.ProtoReflect()),
		"handle":   protoreflect.ValueOfBytes(handle),
		"target":   protoreflect.ValueOfUint64(w.other),
	} {
		if field := m.Descriptor().Fields().ByName(name); field != nil {
			m.Set(field, value)
		}
	}
	return request
}
