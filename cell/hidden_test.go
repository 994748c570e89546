package cell_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// What is hidden from the stranger: closedFile, beside two locks of his own; a file in a directory that he may read; a file that he may
// write only; and handleFile, whose ACL alone he may change.
const (
	shownDir    = "/ls/local/shown"
	shownFile   = "/ls/local/shown/file"
	dropFile    = "/ls/local/drop"
	strangerOne = "/ls/local/a"
	strangerTwo = "/ls/local/z"
)

// toldToEverybody says why fields of answers may depend on what is hidden.
func toldToEverybody() map[protoreflect.FullName]string {
	const (
		whole = "how much the cell has and does as a whole is told to everybody"
		fresh = "it is another for each call"
		own   = "it is of the caller itself"
	)
	return map[protoreflect.FullName]string{
		"chubby.v1.StatusReply.nodes":                        whole,
		"chubby.v1.StatusReply.locks":                        whole,
		"chubby.v1.StatusReply.sessions":                     whole,
		"chubby.v1.ReplicaStatus.last":                       whole,
		"chubby.v1.ReplicaStatus.applied":                    whole,
		"chubby.v1.ReplicaStatus.state_hash":                 whole + "; the hash is of the cell's secret, too",
		"chubby.v1.ReplicaStatus.disk_free_bytes":            whole,
		"chubby.v1.CreateSessionReply.session":               fresh,
		"chubby.v1.CreateSessionReply.id":                    fresh,
		"chubby.v1.Grant.number":                             fresh,
		"chubby.v1.OpenReply.handle":                         fresh,
		"chubby.v1.OpenReply.handle_id":                      fresh,
		"chubby.v1.SetSequencerReply.handle":                 fresh,
		"chubby.v1.ListLocksReply.next":                      "it is encrypted: TestMarksTellNothing",
		"chubby.v1.ListSessionsReply.next":                   "it is encrypted: TestMarksTellNothing",
		"chubby.v1.ListQuotasReply.next":                     "it is encrypted: TestMarksTellNothing",
		"chubby.v1.ListSessionsReply.sessions.party.session": own,
		"chubby.v1.SetACLReply.stat.acl_generation":          own,
		"chubby.v1.OpenReply.stat.acl_generation":            own,
		"chubby.v1.GetStatReply.stat.acl_generation":         own,
	}
}

// notCompared says which RPCs are not asked.
var notCompared = map[protoreflect.Name]string{
	"KeepAlive":  "it waits for events: TestChildEventsNeedTheRightToTheChild",
	"KeepAlives": "it waits for events: TestChildEventsNeedTheRightToTheChild",
}

// question is a request of the stranger, and what the handle is opened for that it goes through.
type question struct {
	request proto.Message
	handle  *pb.OpenRequest // nil: handleFile, to change its ACL
}

// questions returns requests beside those of rpcRows: about each of what is hidden, and for listings of parts that end at it.
func (w *program) questions(invented []string) map[protoreflect.Name][]question {
	drop := &pb.OpenRequest{Path: dropFile, Write: true}
	all := map[protoreflect.Name][]question{
		"GetStat": {{request: &pb.GetStatRequest{}, handle: drop}},
		"SetACL":  {{request: &pb.SetACLRequest{Acl: &pb.ACL{Change: "stranger"}}}},
		"ReadDir": {{request: &pb.ReadDirRequest{}, handle: &pb.OpenRequest{Path: shownDir, Read: true}}},
		"Open": {
			{request: &pb.OpenRequest{Path: dropFile, Write: true, LockDelayNs: 1}}, {request: &pb.OpenRequest{Path: handleFile, ChangeAcl: true}},
			{request: &pb.OpenRequest{Path: shownFile, Read: true}}, {request: &pb.OpenRequest{Path: closedFile, Read: true}},
			{request: &pb.OpenRequest{Path: closedFile, Write: true, Create: pb.Create_CREATE_MAY}}, {request: &pb.OpenRequest{Path: closedFile + "/below", Write: true, Create: pb.Create_CREATE_MUST}},
		},
		"Explain":      {{request: &pb.ExplainRequest{Path: shownFile}}, {request: &pb.ExplainRequest{Path: handleFile}}},
		"History":      {{request: &pb.HistoryRequest{Path: shownFile}}, {request: &pb.HistoryRequest{Path: handleFile}}},
		"ListLocks":    {{request: &pb.ListLocksRequest{Most: 1}}, {request: &pb.ListLocksRequest{Session: w.other, Most: 1}}, {request: &pb.ListLocksRequest{Prefix: closedFile}}, {request: &pb.ListLocksRequest{Prefix: shownDir}}},
		"ListQuotas":   {{request: &pb.ListQuotasRequest{Most: 1}}, {request: &pb.ListQuotasRequest{Path: closedFile}}, {request: &pb.ListQuotasRequest{Principal: "operator"}}},
		"ListSessions": {{request: &pb.ListSessionsRequest{Session: w.other}}},
		"Lint":         {{request: &pb.LintRequest{Path: closedFile}}, {request: &pb.LintRequest{Session: w.other}}},
		"Txn": {
			{request: &pb.TxnRequest{Conditions: []*pb.TxnCondition{{Path: closedFile, Holds: &pb.TxnCondition_Generation{}}}}},
			{request: &pb.TxnRequest{Conditions: []*pb.TxnCondition{{Path: shownFile, Holds: &pb.TxnCondition_Generation{Generation: 1}}}}},
			{request: &pb.TxnRequest{Operations: []*pb.TxnOperation{{Action: pb.TxnAction_TXN_ACTION_DELETE, Path: closedFile}}}},
			{request: &pb.TxnRequest{Operations: []*pb.TxnOperation{{Action: pb.TxnAction_TXN_ACTION_CREATE, Path: closedFile}}}},
		},
	}
	for _, text := range invented {
		all["CheckSequencer"] = append(all["CheckSequencer"], question{request: &pb.CheckSequencerRequest{Sequencer: text}})
		all["SetSequencer"] = append(all["SetSequencer"], question{request: &pb.SetSequencerRequest{Sequencer: text}})
		all["SetContents"] = append(all["SetContents"], question{request: &pb.SetContentsRequest{IfSequencer: text}, handle: drop})
		all["Delete"] = append(all["Delete"], question{request: &pb.DeleteRequest{IfSequencer: text}, handle: drop})
		all["SetACL"] = append(all["SetACL"], question{request: &pb.SetACLRequest{IfSequencer: text, Acl: &pb.ACL{}}})
		all["Txn"] = append(all["Txn"], question{request: &pb.TxnRequest{Conditions: []*pb.TxnCondition{{Holds: &pb.TxnCondition_Sequencer{Sequencer: text}}}}})
	}
	return all
}

// ask asks every question in a session of its own, and returns each field of each answer.
func (w *program) ask(invented []string) map[string]string {
	w.t.Helper()
	told := map[string]string{}
	more := w.questions(invented)
	for _, method := range calls() {
		if notCompared[method.Name()] != "" {
			continue
		}
		questions := more[method.Name()]
		if method.Name() != "SetACL" { // whose row gives the stranger a right
			questions = append([]question{{request: rpcRows()[method.Name()].request}}, questions...)
		}
		for i, q := range questions {
			caller := w.session("")
			open := &pb.OpenRequest{Path: handleFile, ChangeAcl: true}
			if q.handle != nil {
				open = proto.Clone(q.handle).(*pb.OpenRequest)
			}
			request := w.filled(q.request, caller, w.open(caller, open), w.mutation())
			w.fields(told, fmt.Sprintf("%s %d", method.Name(), i), method, request)
			if _, err := w.EndSession(w.t.Context(), &pb.EndSessionRequest{Caller: caller}); err != nil && method.Name() != "EndSession" {
				w.t.Fatal(method.Name(), err)
			}
		}
	}
	return told
}

// fields makes a call, and adds each field of its answer, or of its error.
func (w *program) fields(told map[string]string, call string, method protoreflect.MethodDescriptor, request proto.Message) {
	reply, err := w.invoke(method, request)
	if err == nil {
		flatten(told, call, reply, "")
		return
	}
	refused, _ := status.FromError(err)
	told[call+" code"], told[call+" message"] = refused.Code().String(), refused.Message()
	for _, detail := range refused.Details() {
		flatten(told, call, detail.(proto.Message).ProtoReflect(), "")
	}
}

// flatten adds the fields of a message that are set, except those that are told to everybody. Of a time or a duration it adds that it is set.
func flatten(told map[string]string, call string, m protoreflect.Message, inside protoreflect.FullName) {
	exempt := toldToEverybody()
	m.Range(func(f protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		at := inside + "." + protoreflect.FullName(f.Name())
		if inside == "" {
			at = f.FullName()
		}
		add := func(key string, v protoreflect.Value) {
			name := string(f.Name())
			switch {
			case f.Message() != nil && !f.IsMap():
				flatten(told, call+key, v.Message(), at)
			case exempt[f.FullName()] != "" || exempt[at] != "" || strings.HasSuffix(name, "_ns") || strings.HasSuffix(name, "_unix"):
				told[call+" "+string(at)+key] = "set"
			default:
				told[call+" "+string(at)+key] = v.String()
			}
		}
		switch {
		case f.IsList():
			for i := range value.List().Len() {
				add(fmt.Sprintf("[%d]", i), value.List().Get(i))
			}
		case f.IsMap():
			value.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				told[call+" "+string(at)+"["+k.String()+"]"] = v.String()
				return true
			})
		default:
			add("", value)
		}
		return true
	})
}

// hiding is what is hidden, and how it is changed.
type hiding struct {
	invented []string // sequencers that the stranger makes up
	held     []byte   // the handle that holds the lock of closedFile
	write    func(path, contents string)
	lock     func(by *program, caller *pb.Caller, path string) (handle []byte, granted *pb.Granted)
}

func operatorsOnly() *pb.ACL { return &pb.ACL{Read: "operator", Write: "operator", Change: "operator"} }

// hide makes what is hidden, in a session of the operator's.
func hide(t *testing.T, c tlsCell, operator, w *program, theirs *pb.Caller) hiding {
	t.Helper()
	closed := operatorsOnly()
	open := func(q *pb.OpenRequest) []byte {
		t.Helper()
		return operator.open(theirs, q)
	}
	mine := &pb.ACL{Read: "stranger", Write: "stranger", Change: "stranger"}
	for _, path := range []string{strangerOne, strangerTwo} {
		open(&pb.OpenRequest{Path: path, Write: true, Create: pb.Create_CREATE_MUST, Acl: mine})
	}
	open(&pb.OpenRequest{Path: shownDir, Write: true, Create: pb.Create_CREATE_MUST, Kind: pb.Kind_KIND_DIRECTORY, Acl: &pb.ACL{Read: "stranger", Write: "operator", Change: "operator"}})
	handles := map[string][]byte{
		shownFile: open(&pb.OpenRequest{Path: shownFile, Read: true, Write: true, Create: pb.Create_CREATE_MUST, Acl: closed}),
		dropFile:  open(&pb.OpenRequest{Path: dropFile, Read: true, Write: true, Create: pb.Create_CREATE_MUST, Acl: &pb.ACL{Read: "operator", Write: "stranger", Change: "operator"}}),
	}
	write := func(path, contents string) {
		t.Helper()
		handle := handles[path]
		if handle == nil {
			handle = open(&pb.OpenRequest{Path: path, Read: true, Write: true, Create: pb.Create_CREATE_MAY, Acl: closed})
		}
		noErr(t, errOf(operator.SetContents(t.Context(), &pb.SetContentsRequest{Caller: theirs, Mutation: operator.mutation(), Handle: handle, Contents: []byte(contents)})))
	}
	lock := func(by *program, caller *pb.Caller, path string) (handle []byte, granted *pb.Granted) {
		t.Helper()
		handle = by.open(caller, &pb.OpenRequest{Path: path, Read: true, Write: true})
		reply := must(by.TryAcquire(t.Context(), &pb.TryAcquireRequest{Caller: caller, Mutation: by.mutation(), Handle: handle, Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE}))(t)
		return handle, reply.GetGranted()
	}
	holder := w.session("")
	for _, path := range []string{strangerOne, strangerTwo} {
		lock(w, holder, path)
	}
	held, granted := lock(operator, theirs, closedFile)
	// What the stranger invents: the sequencer of the lock as it is held, made of what he knows and of the right token.
	made := must(sequencer.Parse(granted.GetSequencer()))(t)
	invented := []string{made.String()}
	made.Proof = sequencer.Proof{1}
	invented = append(invented, made.String())
	made.Path = api.MustParsePath(shownFile)
	invented = append(invented, made.String())
	return hiding{invented: invented, held: held, write: write, lock: lock}
}

// What a caller without the right is told is the same, field by field, whether something is there, and whatever it is like: for each RPC. Fields that are
// told to everybody have a row in toldToEverybody, which says why.
func TestAnswersAreTheSameWhateverIsHidden(t *testing.T) {
	inTLSCell(t, 1, func(t *testing.T, _ context.Context, c tlsCell) {
		operator, w := connectRights(t, c, "operator"), connectRights(t, c, "stranger")
		operator.prepare()
		w.number = 1000
		theirs := operator.session("")
		sessions := must(operator.ListSessions(t.Context(), &pb.ListSessionsRequest{}))(t)
		w.other = sessions.GetSessions()[len(sessions.GetSessions())-1].GetParty().GetSession()
		hidden := hide(t, c, operator, w, theirs)
		first := w.ask(hidden.invented)
		write := hidden.write
		for _, state := range []struct {
			name   string
			change func()
		}{
			{"held, and a second lock, too, and with contents", func() {
				hidden.lock(operator, theirs, shownFile)
				write(closedFile, "4711")
				write(shownFile, "4711")
				write(dropFile, "4711")
				write(handleFile, "4711")
			}},
			{"with more contents, and free", func() {
				write(closedFile, strings.Repeat("a", 1000))
				write(shownFile, "47110")
				write(dropFile, "47110")
				write(handleFile, "47110")
				noErr(t, errOf(operator.CloseHandle(t.Context(), &pb.CloseHandleRequest{Caller: theirs, Mutation: operator.mutation(), Handle: hidden.held})))
			}},
			{"gone", func() {
				noErr(t, errOf(operator.Delete(t.Context(), &pb.DeleteRequest{Caller: theirs, Mutation: operator.mutation(), Handle: operator.open(theirs, &pb.OpenRequest{Path: closedFile, Write: true})})))
			}},
			{"a directory with a quota, and files in it", func() {
				operator.open(theirs, &pb.OpenRequest{Path: closedFile, Write: true, Create: pb.Create_CREATE_MUST, Kind: pb.Kind_KIND_DIRECTORY, Acl: operatorsOnly()})
				operator.open(theirs, &pb.OpenRequest{Path: closedFile + "/below", Write: true, Create: pb.Create_CREATE_MUST, Acl: operatorsOnly()})
				noErr(t, errOf(operator.SetQuota(t.Context(), &pb.SetQuotaRequest{Caller: theirs, Mutation: operator.mutation(), Path: closedFile, Allowed: &pb.QuotaAmounts{Nodes: 9}})))
			}},
		} {
			state.change()
			now := w.ask(hidden.invented)
			for _, key := range slices.Sorted(maps.Keys(merged(first, now))) {
				failIf(t, first[key] != now[key], "%s: %s is %q, and was %q", state.name, key, now[key], first[key])
			}
		}
		for name := range toldToEverybody() {
			failIf(t, !isField(name), "toldToEverybody has a row for %s, and there is no such field", name)
		}
	})
}

// merged returns the keys of both.
func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// isField reports whether there is a field of that name; one of a message in a message is named by both fields.
func isField(name protoreflect.FullName) bool {
	parts := strings.Split(string(name), ".")
	m := pb.File_chubby_proto.Messages().ByName(protoreflect.Name(parts[2]))
	for _, part := range parts[3:] {
		if m == nil || m.Fields().ByName(protoreflect.Name(part)) == nil {
			return false
		}
		m = m.Fields().ByName(protoreflect.Name(part)).Message()
	}
	return true
}
