package cell_test

import (
	"context"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
)

// copyRows has a row for each RPC that changes something and answers with more than that it was done: how a session makes the
// change, by that number. Each has files of its own.
func copyRows() map[protoreflect.Name]func(ctx context.Context, w *rights, about copied) (proto.Message, error) {
	const exclusive = pb.LockMode_LOCK_MODE_EXCLUSIVE
	return map[protoreflect.Name]func(ctx context.Context, w *rights, about copied) (proto.Message, error){
		"Open": func(ctx context.Context, w *rights, about copied) (proto.Message, error) {
			return w.chubby.Open(ctx, &pb.OpenRequest{Caller: about.caller, Mutation: about.mutation,
				Path: about.made, Read: true, Write: true, Create: pb.Create_CREATE_MAY, Contents: []byte("one")})
		},
		"SetContents": func(ctx context.Context, w *rights, about copied) (proto.Message, error) {
			return w.chubby.SetContents(ctx, &pb.SetContentsRequest{Caller: about.caller, Mutation: about.mutation, Handle: about.handle, Contents: []byte("one")})
		},
		"SetACL": func(ctx context.Context, w *rights, about copied) (proto.Message, error) {
			return w.chubby.SetACL(ctx, &pb.SetACLRequest{Caller: about.caller, Mutation: about.mutation, Handle: about.handle, Acl: &pb.ACL{Read: "operator"}})
		},
		"Txn": func(ctx context.Context, w *rights, about copied) (proto.Message, error) {
			return w.chubby.Txn(ctx, &pb.TxnRequest{Caller: about.caller, Mutation: about.mutation, Operations: []*pb.TxnOperation{
				{Action: pb.TxnAction_TXN_ACTION_PUT, Path: about.there, Contents: []byte("one")},
				{Action: pb.TxnAction_TXN_ACTION_CREATE, Path: about.made, Contents: []byte("one")},
			}})
		},
		"TryAcquire": func(ctx context.Context, w *rights, about copied) (proto.Message, error) {
			return w.chubby.TryAcquire(ctx, &pb.TryAcquireRequest{Caller: about.caller, Mutation: about.mutation, Handle: about.handle, Mode: exclusive})
		},
		"Acquire": func(ctx context.Context, w *rights, about copied) (proto.Message, error) {
			stream, err := w.chubby.Acquire(ctx, &pb.AcquireRequest{Caller: about.caller, Mutation: about.mutation, Handle: about.handle, Mode: exclusive})
			if err != nil {
				return nil, err
			}
			return stream.Recv()
		},
		"Cancel": func(ctx context.Context, w *rights, about copied) (proto.Message, error) { // of a lock that was granted
			if _, err := w.chubby.TryAcquire(ctx, &pb.TryAcquireRequest{Caller: about.caller, Mutation: about.mutation, Handle: about.handle, Mode: exclusive}); err != nil {
				return nil, err
			}
			return w.chubby.Cancel(ctx, &pb.CancelRequest{Caller: about.caller, Mutation: about.mutation})
		},
	}
}

// presentAnswers says why the answer to a change may be what is there when it is answered.
func presentAnswers() map[protoreflect.Name]string {
	const ofCell = "it says how the cell is now, which nobody's change depends on"
	return map[protoreflect.Name]string{"FinishUpgrade": ofCell, "Restore": ofCell}
}

// copied is what a change is made with, each time that it is sent.
type copied struct {
	caller   *pb.Caller
	mutation *pb.Mutation
	handle   []byte // of there
	there    string // a file
	made     string // a file that is absent
}

// The answer to a change says what that change has done, and nothing of what others have done since: a client whose first
// answer was lost gets it by sending the change again, and goes on from the generations in it.
func TestEveryChangeIsAnsweredByItsResult(t *testing.T) {
	rows, exempt := copyRows(), presentAnswers()
	synctest.Test(t, func(t *testing.T) {
		w := startRights(t)
		for _, method := range calls() {
			if method.Input().Fields().ByName("mutation") == nil || method.Output().Fields().Len() == 0 {
				continue
			}
			if _, ok := exempt[method.Name()]; ok {
				delete(exempt, method.Name())
				continue
			}
			send, ok := rows[method.Name()]
			if !ok {
				t.Errorf("%s changes something, and has no row in copyRows: say there how it is sent", method.Name())
				continue
			}
			delete(rows, method.Name())
			one := w.session("operator")
			about := copied{caller: one, there: "/ls/local/there-" + string(method.Name()), made: "/ls/local/made-" + string(method.Name())}
			about.handle = w.open(one, &pb.OpenRequest{Path: about.there, Read: true, Write: true, ChangeAcl: true, Create: pb.Create_CREATE_MAY})
			about.mutation = w.mutation()
			first, err := send(t.Context(), w, about)
			if err != nil {
				t.Fatalf("%s: %v", method.Name(), err)
			}
			another := w.session("operator")
			w.changeAll(another, about.there)
			w.changeAll(another, about.made)
			again, err := send(t.Context(), w, about)
			if err != nil {
				t.Fatalf("%s, sent again: %v", method.Name(), err)
			}
			if !proto.Equal(first, again) {
				t.Errorf("%s was answered with\n%v\nand, after others had changed the node, with\n%v", method.Name(), first, again)
			}
		}
	})
	for name := range exempt {
		t.Errorf("presentAnswers names %s, which is no RPC that changes something and has an answer", name)
	}
	for name := range rows {
		t.Errorf("copyRows has a row for %s, which is no RPC that changes something and has an answer", name)
	}
}

// changeAll changes all that there is of a file: its contents, the names of its ACLs and its lock.
func (w *rights) changeAll(caller *pb.Caller, path string) {
	w.t.Helper()
	handle := w.open(caller, &pb.OpenRequest{Path: path, Read: true, Write: true, ChangeAcl: true, Create: pb.Create_CREATE_MAY})
	_, err := w.chubby.SetContents(w.t.Context(), &pb.SetContentsRequest{Caller: caller, Mutation: w.mutation(), Handle: handle, Contents: []byte("another")})
	if err == nil {
		_, err = w.chubby.SetACL(w.t.Context(), &pb.SetACLRequest{Caller: caller, Mutation: w.mutation(), Handle: handle, Acl: &pb.ACL{Write: "operator"}})
	}
	if err == nil {
		_, err = w.chubby.TryAcquire(w.t.Context(), &pb.TryAcquireRequest{Caller: caller, Mutation: w.mutation(), Handle: handle, Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE})
	}
	if err != nil && api.CodeOf(pb.Error(err)) != api.LockHeld {
		w.t.Fatal(err)
	}
}
