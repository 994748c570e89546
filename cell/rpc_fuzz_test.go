package cell_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/internal/seeds"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// FuzzRPC sends every message that can be decoded to every call of a running replica, with a valid or invalid session
// and handle. The replica must answer each call, without an internal error and without a crash.
func FuzzRPC(f *testing.F) {
	seeds.Add(f)
	c := celltest.Start(f, 1)
	conn, err := grpc.NewClient("passthrough:///"+c.Servers()[0], grpc.WithContextDialer(c.Dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	noErr(f, err)
	f.Cleanup(func() { conn.Close() })
	chubby := pb.NewChubbyClient(conn)
	s, err := chubby.CreateSession(f.Context(), &pb.CreateSessionRequest{Nonce: make([]byte, 16), LeaseNs: int64(api.MaxLease)})
	noErr(f, err)
	caller := &pb.Caller{Session: s.GetSession(), Epoch: s.GetEpoch()}
	o, err := chubby.Open(f.Context(), &pb.OpenRequest{
		Caller: caller, Mutation: &pb.Mutation{Number: 1, HighestIssued: 1, Outstanding: []uint64{1}}, Path: "/ls/local/f", Read: true, Write: true,
		ChangeAcl: true, Create: pb.Create_CREATE_MAY,
	})
	noErr(f, err)
	methods := calls()
	for i := range methods {
		f.Add(byte(i), []byte{}, true, uint64(i))
		f.Add(byte(i), []byte("\x1a\x0b/ls/local/f"), false, uint64(0))
	}
	f.Fuzz(func(t *testing.T, which byte, body []byte, graft bool, number uint64) {
		method := methods[int(which)%len(methods)]
		request := dynamicpb.NewMessage(method.Input())
		if err := proto.Unmarshal(body, request); err != nil {
			return
		}
		if graft && method.Name() != "EndSession" && method.Name() != "CloseHandle" { // the next inputs need both
			set(request, "caller", caller)
			set(request, "mutation", &pb.Mutation{Number: number, HighestIssued: number, Outstanding: []uint64{number}})
			if field := method.Input().Fields().ByName("handle"); field != nil && field.Kind() == protoreflect.BytesKind {
				request.Set(field, protoreflect.ValueOfBytes(o.GetHandle()))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := invoke(ctx, conn, method, request); err != nil && strings.Contains(err.Error(), "this is a bug") {
			t.Fatalf("%s of %v: %v", method.Name(), request, err)
		}
	})
}

// calls lists every call of the protocol.
func calls() []protoreflect.MethodDescriptor {
	var list []protoreflect.MethodDescriptor
	services := pb.File_chubby_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			list = append(list, methods.Get(j))
		}
	}
	return list
}

// set puts a message into the field of that name, if there is one.
func set(request *dynamicpb.Message, name protoreflect.Name, value proto.Message) {
	field := request.Descriptor().Fields().ByName(name)
	if field == nil {
		return
	}
	data, err := proto.Marshal(value)
	if err != nil {
		return
	}
	inner := dynamicpb.NewMessage(field.Message())
	if proto.Unmarshal(data, inner) == nil {
		request.Set(field, protoreflect.ValueOfMessage(inner))
	}
}

// invoke makes one call and takes its first answer.
func invoke(ctx context.Context, conn grpc.ClientConnInterface, method protoreflect.MethodDescriptor, request proto.Message) error {
	name := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, name)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(request); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(dynamicpb.NewMessage(method.Output()))
}
