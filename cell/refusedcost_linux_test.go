package cell_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/client"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// shapesOf returns messages of n bytes, by what they are made of, that may take much more when they are decoded: of each field, the smallest there is,
// again and again.
func shapesOf(message protoreflect.MessageDescriptor, n int) map[string][]byte {
	again := func(one ...byte) []byte { return bytes.Repeat(one, n/len(one)) }
	field := func(number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	all := map[string][]byte{
		"groups":         again(protowire.AppendTag(nil, 15, protowire.StartGroupType)...),
		"unknown fields": again(protowire.AppendVarint(protowire.AppendTag(nil, 15, protowire.VarintType), 1)...),
	}
	for i := range message.Fields().Len() {
		f := message.Fields().Get(i)
		name, number := string(f.Name()), f.Number()
		put := func(what string, shape []byte) { all[name+": "+what] = shape }
		switch inner := f.Message(); {
		case inner != nil:
			put("empty messages", again(field(number, nil)...))
			if n > 1<<10 {
				for what, shape := range shapesOf(inner, n-16) {
					put(what, field(number, shape))
				}
			}
		case f.Kind() == protoreflect.StringKind:
			put("a long text", field(number, again([]byte("/a")...)))
			put("short texts", again(field(number, []byte("a"))...))
		case f.Kind() == protoreflect.BytesKind:
			put("short ones", again(field(number, []byte("a"))...))
			list := append(binary.BigEndian.AppendUint32([]byte{0x9a}, uint32(n-32)), bytes.Repeat([]byte{0xa0}, n-32)...)
			put("a list of empty maps in CBOR", field(number, list))
			put("a list of empty maps in CBOR, in a map", field(number, append([]byte{0xa2, 1, 1, 2}, list...)))
		default:
			put("numbers", again(protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), 1)...))
			if f.IsList() {
				put("a list of numbers", field(number, again(1)))
			}
		}
	}
	return all
}

// cost is what a call has taken of this process, both of its ends together.
type cost struct {
	memory    int64
	processor time.Duration
}

func costOf(t *testing.T, do func()) cost {
	used := func() (memory int64, processor time.Duration) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		var u syscall.Rusage
		noErr(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return int64(m.TotalAlloc), time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	memory, processor := used()
	do()
	after, later := used()
	return cost{after - memory, later - processor}
}

// A call that is refused costs little more than to send it, from any caller, of any kind, over both transports, and whatever its request is made
// of.
func TestRefusedCallsCostLittle(t *testing.T) {
	inTokenCell(t, 1, func(t *testing.T, ctx context.Context, c *tokenCell) {
		operator := dial(t, ctx, c.Cell, "operator", client.Config{TLS: c.clients.client("alice")})
		open(t, ctx, operator, "/ls/local/treasure", 0)
		mallory := c.clients.client("mallory")
		services := pb.NewChubbyClient(c.link(t, ctx, mallory))
		session, err := services.CreateSession(ctx, &pb.CreateSessionRequest{Cell: "local", Nonce: make([]byte, 16), LeaseNs: int64(api.MaxLease)})
		c.clients.check(err)
		caller := &pb.Caller{Session: session.GetSession(), Epoch: session.GetEpoch()}
		number := uint64(1)
		mutation := func() *pb.Mutation {
			number++
			return &pb.Mutation{Number: number, HighestIssued: number, Outstanding: []uint64{number}}
		}
		handle, err := services.Open(ctx, &pb.OpenRequest{Caller: caller, Mutation: mutation(), Path: "/ls/local/treasure", Read: true})
		c.clients.check(err)
		// known is the part of a request that has it served as far as its caller's rights are.
		known := func(message protoreflect.MessageDescriptor) []byte {
			request := dynamicpb.NewMessage(message)
			set(request, "caller", caller)
			set(request, "mutation", mutation())
			if field := message.Fields().ByName("handle"); field != nil {
				request.Set(field, protoreflect.ValueOfBytes(handle.GetHandle()))
			}
			wire, err := proto.Marshal(request)
			c.clients.check(err)
			return wire
		}
		var worst cost
		for who, s := range map[string]stranger{"nobody": {}, "who encrypts nothing": {plain: true}, "a client": {files: mallory}} {
			for way, connect := range map[string]func() grpc.ClientConnInterface{
				"gRPC":   func() grpc.ClientConnInterface { return c.overGRPC(t, s) },
				"frames": func() grpc.ClientConnInterface { return c.overFrames(t, ctx, s) },
			} {
				for _, method := range calls() {
					conn := connect() // refused ones are closed after a while
					for _, n := range []int{32 << 10} {
						for shape, wire := range shapesOf(method.Input(), n) {
							ask := func() {
								request := dynamicpb.NewMessage(method.Input())
								request.SetUnknown(append(known(method.Input()), wire...))
								timed, cancel := context.WithTimeout(ctx, time.Second)
								defer cancel()
								_, _ = invoke(timed, conn, method, request) // it is refused, or it is not
							}
							most := cost{int64(8*len(wire)) + 1<<20, 50 * time.Millisecond} // under the race detector pools keep little: a legal call takes 1.2 MiB then
							took := costOf(t, ask)
							for try := 0; try < 5 && (took.memory > most.memory || took.processor > most.processor); try++ { // something else may have been done meanwhile
								again := costOf(t, ask)
								took = cost{min(took.memory, again.memory), min(took.processor, again.processor)}
							}
							if took.memory > most.memory || took.processor > most.processor {
								t.Errorf("%s of %s over %s, %s (%d bytes), takes %d KiB of memory and %v of a processor", method.Name(), who, way, shape, len(wire), took.memory>>10, took.processor)
							}
							worst = cost{max(worst.memory, took.memory), max(worst.processor, took.processor)}
						}
					}
				}
			}
		}
		t.Logf("the dearest: %d KiB, %v", worst.memory>>10, worst.processor)
	})
}
