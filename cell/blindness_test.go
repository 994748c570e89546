package cell_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/certs"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// naming says what a field of a request names, by a value of what is there and one of what is not.
type naming struct {
	there, absent any
	told          string // why callers without the right are told which it is; empty: they are not
	edit          func(protoreflect.Message)
}

const noName = "it names nothing that the caller could ask for"

// namings has what the fields of requests name, by the RPC and the field, or by the field alone; and why the others name nothing.
// A flag names nothing, and has no row.
func (w *program) namings(member string, handle []byte, sequencer, stale string) (map[protoreflect.Name]naming, map[protoreflect.Name]string) {
	path := naming{there: closedFile, absent: "/ls/local/absent"}
	told := func(n naming, why string) naming { n.told = why; return n }
	session := naming{there: w.other, absent: w.other + 1000}
	forged := slices.Clone(handle)
	forged[len(forged)-1] ^= 1
	const sessions = "everybody sees of another's session that it is there (SECURITY.md)"
	replica := naming{there: member, absent: "r9"}
	creates := func(c pb.Create) func(protoreflect.Message) {
		return func(m protoreflect.Message) {
			m.Set(m.Descriptor().Fields().ByName("create"), protoreflect.ValueOfEnum(c.Number()))
		}
	}
	open := func(c pb.Create) naming { n := path; n.edit = creates(c); return n }
	named := map[protoreflect.Name]naming{
		"Open.path":            open(pb.Create_CREATE_MUST_EXIST),
		"Open.path may":        open(pb.Create_CREATE_MAY),
		"Open.path must":       open(pb.Create_CREATE_MUST),
		"SetQuota.path":        {there: path.there, absent: path.absent, edit: func(m protoreflect.Message) { m.Clear(m.Descriptor().Fields().ByName("principal")) }},
		"path":                 path,
		"prefix":               path,
		"target":               told(session, sessions),
		"ListSessions.session": told(session, sessions),
		"session":              session,
		"of":                   session,
		"principal":            {there: "bystander", absent: "nobody"},
		"to":                   replica,
		"remove":               replica,
		"add":                  {there: member, absent: "r9", edit: func(m protoreflect.Message) { m.Clear(m.Descriptor().Fields().ByName("remove")) }},
		"without":              replica,
		"keep":                 replica,
		"after":                {there: "closed", absent: "absent"},
		"handle":               {there: handle, absent: forged},
		"directory":            {there: handle, absent: forged},
		"ticket":               {there: handle, absent: forged},
		"sequencer":            {there: sequencer, absent: stale, told: "a sequencer is shown to be checked: whoever has it may ask whether it is valid"},
		"SetSequencer.sequencer": {
			there: sequencer, absent: stale,
			told: "a sequencer is shown to be checked: whoever has it may ask whether it is valid",
		},
		"Txn.conditions": {there: closedFile, absent: path.absent, edit: func(m protoreflect.Message) {
			q := m.Interface().(*pb.TxnRequest)
			q.Operations = nil
		}},
		"Txn.conditions may": {there: closedFile, absent: path.absent, edit: func(m protoreflect.Message) {
			m.Interface().(*pb.TxnRequest).Conditions[0].Holds = &pb.TxnCondition_Generation{}
		}},
		"Txn.operations": {there: closedFile, absent: path.absent, edit: func(m protoreflect.Message) { m.Interface().(*pb.TxnRequest).Conditions = nil }},
		"Txn.operations must": {there: closedFile, absent: path.absent, edit: func(m protoreflect.Message) {
			q := m.Interface().(*pb.TxnRequest)
			q.Conditions, q.Operations[0].Action = nil, pb.TxnAction_TXN_ACTION_CREATE
		}},
		"if_sequencer":        {there: sequencer, absent: stale},
		"SetACL.if_sequencer": {there: sequencer, absent: stale, told: "the caller has the right to this, and shows the sequencer to be checked"},
		"cell":                {there: "local", absent: "other", told: "every caller is told the cell's name, by Locate"},
	}
	nothing := map[protoreflect.Name]string{
		"owner":  "a name that a client makes up for what it does; those of others count only with their principal",
		"caller": "the number of a session is what proves whose it is: it has 128 random bits", "mutation": "the caller's own number", "acl": noName, "allowed": noName, "begin": "of a backup; only operators pass",
		"ListLocks.after": "from an earlier reply", "ListSessions.after": "from an earlier reply", "ListQuotas.after": "from an earlier reply",
		"backup": "a random number of the caller", "part": noName, "seal": noName, "token": "it says who the caller is", "as": "it says who the caller is",
	}
	for name := range strings.FieldsSeq(`nonce request lease_ns host pid acknowledged grant received reason events lock_delay_ns create kind contents if_generation
		mode generation raft most kinds vacant_ns waited_ns`) {
		nothing[protoreflect.Name(name)] = noName
	}
	return named, nothing
}

// connectRights connects a principal to the master.
func connectRights(t *testing.T, c tlsCell, principal string) *program {
	t.Helper()
	config := must(certs.Open(c.clients.client(principal)))(t).Client(c.Master(), nil)
	config.NextProtos = []string{"h2"}
	return connect(t, c.Dial, c.Master(), config)
}

// A caller without the right is answered the same, byte by byte but for what it wrote itself, whether what it names is
// there or not. Fields of new RPCs need a row; rows of what is told say why.
func TestRefusalsTellNotWhatIsThere(t *testing.T) {
	inTLSCell(t, 3, func(t *testing.T, _ context.Context, c tlsCell) {
		operator, w := connectRights(t, c, "operator"), connectRights(t, c, "stranger")
		operator.prepare()
		w.other, w.number = operator.other, 1000
		theirs := operator.session("")
		locked := func(path string) ([]byte, string) {
			handle := operator.open(theirs, &pb.OpenRequest{Path: path, Read: true, Write: true})
			noErr(t, errOf(operator.TryAcquire(t.Context(), &pb.TryAcquireRequest{Caller: theirs, Mutation: operator.mutation(), Handle: handle, Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE})))
			held := must(operator.GetSequencer(t.Context(), &pb.GetSequencerRequest{Caller: theirs, Handle: handle}))(t)
			return handle, held.GetProvedSequencer()
		}
		handle, sequencer := locked(closedFile)
		closed, stale := locked("/ls/local/acl/stranger")
		noErr(t, errOf(operator.CloseHandle(t.Context(), &pb.CloseHandleRequest{Caller: theirs, Mutation: operator.mutation(), Handle: closed})))
		bystander := connectRights(t, c, "bystander")
		bystander.number = 2000 // of nonces, too
		bystander.session("")
		member := "r1"
		if c.Master() == member {
			member = "r2" // every answer has the master's name
		}
		named, nothing := w.namings(member, handle, sequencer, stale)
		tried := map[protoreflect.Name]bool{}
		for _, method := range calls() {
			for i := range method.Input().Fields().Len() {
				field := method.Input().Fields().Get(i)
				tried[field.Name()] = true
				if field.Kind() == protoreflect.BoolKind {
					continue
				}
				if _, ok := nothing[method.Name()+"."+field.Name()]; ok {
					tried[method.Name()+"."+field.Name()] = true
					continue
				}
				for _, suffix := range []protoreflect.Name{"", " may", " must"} {
					name := method.Name() + "." + field.Name() + suffix
					n, ok := named[name]
					tried[name] = true
					if !ok && suffix != "" {
						continue
					}
					if !ok {
						n, ok = named[field.Name()]
					}
					if ok {
						w.compare(method, field, name, n)
					} else if nothing[field.Name()] == "" {
						t.Errorf("%s has no row: say in namings what it names, or that it names nothing", name)
					}
				}
			}
		}
		for name := range named {
			failIf(t, !tried[name], "namings has a row for %s, and there is no such field", name)
		}
		for name := range nothing {
			failIf(t, !tried[name], "namings says that %s names nothing, and there is no such field", name)
		}
	})
}

// compare asks for what is there, and for what is not.
func (w *program) compare(method protoreflect.MethodDescriptor, field protoreflect.FieldDescriptor, name protoreflect.Name, n naming) {
	w.t.Helper()
	var answers [2]string
	for i, value := range []any{n.there, n.absent} {
		caller := w.session("")
		handle := w.open(caller, &pb.OpenRequest{Path: handleFile, ChangeAcl: true})
		request := w.filled(rpcRows()[method.Name()].request, caller, handle, w.mutation())
		if set := request.ProtoReflect(); field.IsList() && field.Kind() == protoreflect.MessageKind {
			step := set.Mutable(field).List().Get(0).Message()
			step.Set(step.Descriptor().Fields().ByName("path"), protoreflect.ValueOf(value))
		} else if field.IsList() {
			set.Mutable(field).List().Append(protoreflect.ValueOf(value))
		} else if field.Kind() == protoreflect.BytesKind {
			set.Set(field, protoreflect.ValueOfBytes(fmt.Append(nil, text(value))))
		} else {
			set.Set(field, protoreflect.ValueOf(value))
		}
		if n.edit != nil {
			n.edit(request.ProtoReflect())
		}
		answers[i] = strings.ReplaceAll(w.answer(method, request), text(value), "NAMED")
	}
	if same := answers[0] == answers[1]; same != (n.told == "") {
		w.t.Errorf("%s: of what is there\n%s\nand of what is not\n%s\nThese are to differ only where the row says why (%q)", name, answers[0], answers[1], n.told)
	}
}

// text is a value as a message has it.
func text(value any) string {
	if b, ok := value.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(value)
}

// answer returns all that a call tells: its code, message and details, or its reply.
func (w *program) answer(method protoreflect.MethodDescriptor, request proto.Message) string {
	reply, err := w.invoke(method, request)
	if err != nil {
		s, _ := status.FromError(err)
		return strings.Join(strings.Fields(prototext.Format(s.Proto())), " ")
	}
	if since := method.Output().Fields().ByName("since_ns"); since != nil {
		reply.Clear(since) // the time that has passed is another at each call
	}
	return strings.Join(strings.Fields(prototext.Format(reply)), " ")
}

// A caller with some right to a node or to its directory hears why a path cannot be opened; to others, all refusals
// are the same. An operator is told everything.
func TestNamesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startRights(t)
		operator, stranger := w.session("operator"), w.session("stranger")
		closed := &pb.ACL{Read: "operator", Write: "operator", Change: "operator"}
		readable := &pb.ACL{Read: "stranger", Write: "operator", Change: "operator"}
		writable := &pb.ACL{Read: "operator", Write: "stranger", Change: "stranger"}
		for _, made := range []struct {
			path string
			kind pb.Kind
			acl  *pb.ACL
		}{
			{"acl/hidden", pb.Kind_KIND_FILE, closed}, {"dark", pb.Kind_KIND_DIRECTORY, closed}, {"dark/file", pb.Kind_KIND_FILE, closed}, {"dark/directory", pb.Kind_KIND_DIRECTORY, closed},
			{"dark/own", pb.Kind_KIND_FILE, readable},
			{"shown", pb.Kind_KIND_DIRECTORY, readable}, {"shown/file", pb.Kind_KIND_FILE, closed},
			{"drop", pb.Kind_KIND_DIRECTORY, writable}, {"drop/file", pb.Kind_KIND_FILE, writable},
		} {
			by := operator
			if strings.HasPrefix(made.path, "drop/") {
				by = stranger
			}
			w.open(by, &pb.OpenRequest{Path: "/ls/local/" + made.path, Read: by == operator, Write: by == stranger, Create: pb.Create_CREATE_MUST, Kind: made.kind, Acl: made.acl})
		}
		_, err := w.SetACL(t.Context(), &pb.SetACLRequest{Caller: operator, Mutation: w.mutation(), Handle: w.open(operator, &pb.OpenRequest{Path: "/ls/local/acl", ChangeAcl: true}), Acl: closed})
		noErr(t, err)
		try := func(caller *pb.Caller, q *pb.OpenRequest) (api.Code, string) {
			t.Helper()
			path := q.GetPath()
			q.Path, q.Caller, q.Mutation = "/ls/local/"+path, caller, w.mutation()
			_, err := w.Open(t.Context(), q)
			if pb.Error(err) == nil {
				return api.OK, ""
			}
			return api.CodeOf(pb.Error(err)), strings.ReplaceAll(pb.Error(err).Error(), q.GetPath(), "PATH")
		}
		_, withheld := try(stranger, &pb.OpenRequest{Path: "dark/absent", Read: true})
		for _, q := range []*pb.OpenRequest{
			{Path: "dark", Read: true}, {Path: "dark/file", Read: true}, {Path: "dark/file", Write: true}, {Path: "dark/file", ChangeAcl: true},
			{Path: "dark/file", Read: true, Kind: pb.Kind_KIND_DIRECTORY}, {Path: "dark/file/below", Read: true}, {Path: "dark/directory/absent", Read: true},
			{Path: "dark/file", Write: true, Create: pb.Create_CREATE_MUST}, {Path: "dark/absent", Write: true, Create: pb.Create_CREATE_MUST},
			{Path: "dark/absent", Write: true, Create: pb.Create_CREATE_MAY}, {Path: "dark/file", Write: true, Create: pb.Create_CREATE_MAY},
			{Path: "dark/file", Write: true, Create: pb.Create_CREATE_MUST, Acl: &pb.ACL{Read: "nobody-has-made-it"}},
			{Path: "acl/hidden", Read: true, Create: pb.Create_CREATE_MAY, Kind: pb.Kind_KIND_DIRECTORY}, {Path: "acl/absent", Read: true, Create: pb.Create_CREATE_MAY, Kind: pb.Kind_KIND_DIRECTORY},
			{Path: "absent", Read: true}, {Path: "absent/below", Write: true, Create: pb.Create_CREATE_MUST, Ephemeral: true},
		} {
			if code, told := try(stranger, q); code != api.PermissionDenied || told != withheld {
				t.Errorf("%v: %v\n%s\nwant\n%s", q, code, told, withheld)
			}
		}
		for _, one := range []struct {
			caller *pb.Caller
			q      *pb.OpenRequest
			want   api.Code
		}{
			{operator, &pb.OpenRequest{Path: "dark/absent", Read: true}, api.NotFound},
			{stranger, &pb.OpenRequest{Path: "shown/absent", Read: true}, api.NotFound},
			{stranger, &pb.OpenRequest{Path: "shown/absent/below", Read: true}, api.NotFound},
			{stranger, &pb.OpenRequest{Path: "shown/file", Read: true}, api.PermissionDenied},
			{stranger, &pb.OpenRequest{Path: "drop/absent", Read: true}, api.NotFound},
			{stranger, &pb.OpenRequest{Path: "drop/file", Write: true, Create: pb.Create_CREATE_MUST}, api.Exists},
			{stranger, &pb.OpenRequest{Path: "dark/own", Read: true, Kind: pb.Kind_KIND_DIRECTORY}, api.NotDirectory},
			{stranger, &pb.OpenRequest{Path: "dark/own", Read: true}, api.OK},
		} {
			if code, told := try(one.caller, one.q); code != one.want || told == withheld {
				t.Errorf("%v: %v %s; want %v", one.q, code, told, one.want)
			}
		}
	})
}
