package wire

import (
	"cmp"
	"context"
	"errors"
	"path"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// door registers services whose requests are decoded only when the caller is known, the call accepted, and the
// request's size counted. Generated code would decode before it calls an interceptor.
type door struct {
	grpc.ServiceRegistrar
	service *service
}

// RegisterService implements grpc.ServiceRegistrar. A call by a former name of its method counts under the current name.
func (d door) RegisterService(desc *grpc.ServiceDesc, impl any) {
	own := *desc
	own.Methods = nil
	for _, m := range desc.Methods {
		name := "/" + desc.ServiceName + "/" + m.MethodName
		m.Handler = d.service.behindDoor(name, m.Handler)
		own.Methods = append(own.Methods, m)
		if former := pb.FormerName(name); former != "" {
			own.Methods = append(own.Methods, grpc.MethodDesc{MethodName: path.Base(former), Handler: m.Handler})
		}
	}
	d.ServiceRegistrar.RegisterService(&own, impl)
}

// behindDoor returns the handler of a method. For streams, answers.RecvMsg is the door.
func (s *service) behindDoor(method string, handle grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		call := callOf(ctx)
		return handle(srv, ctx,
			func(m any) error { return s.letIn(ctx, call, method, decode, m) },
			func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				return s.unary(ctx, call, method, request, next)
			})
	}
}

// letIn decodes a request, or returns why it is not served. Over gRPC it may still be arriving.
func (s *service) letIn(ctx context.Context, call *call, method string, decode func(any) error, m any) (err error) {
	s.arrive(call)
	var refusal error
	defer func() {
		if refusal == nil {
			return
		}
		call.served()
		s.count(ctx, call, method, nil, nil, refusal)
		if errors.Is(pb.Error(refusal), api.Unauthenticated) {
			s.audit(ctx, witness{}, method, nil, nil, refusal)
		}
	}()
	defer s.recovered(method, &err)
	if refusal = s.checkConnection(ctx, method); refusal != nil {
		return refusal
	}
	refusal, err = s.decode(decode, m, func(size requestSize) error {
		s.arrive(call)
		return call.serve(method, size)
	})
	return cmp.Or(refusal, err)
}

// decode has a transport decode a request whose size accept accepts. err is the transport's error.
func (s *service) decode(decode func(any) error, m any, accept func(requestSize) error) (refusal, err error) {
	message, ok := m.(proto.Message)
	if !ok {
		return nil, decode(m)
	}
	request := &sealed{message: message, accept: accept}
	if err = decode(request); request.err != nil {
		return status(s.fail("call", request.err)), nil
	}
	return nil, err
}

// sealed is a request that is not decoded yet. Both transports accept it as a message: frames by its method
// Decode, gRPC by exactCodec.
type sealed struct {
	message proto.Message
	accept  func(requestSize) error
	opened  bool
	err     error // why it was not decoded
}

// Decode decodes what arrived first, or records why not. It returns no error: gRPC would answer that itself.
func (d *sealed) Decode(wire []byte) error {
	if !d.opened {
		d.opened, d.err = true, d.decode(wire)
	}
	return nil
}

func (d *sealed) decode(wire []byte) error {
	size, malformed := sizeOf(wire, d.message.ProtoReflect().Descriptor())
	if err := d.accept(size); err != nil {
		return err
	}
	if malformed != nil {
		return malformed
	}
	if err := proto.Unmarshal(wire, d.message); err != nil {
		return api.Errorf(api.InvalidArgument, "the request cannot be read: %v", err)
	}
	return nil
}

// exactCodec decodes requests behind the door. It encodes long messages into buffers of their exact size:
// gRPC's pool has none between 32 KiB and 1 MiB.
type exactCodec struct{ encoding.CodecV2 }

func (c exactCodec) Unmarshal(data mem.BufferSlice, v any) error {
	d, ok := v.(*sealed)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	return d.Decode(whole.ReadOnlyData())
}

func (c exactCodec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(proto.Message)
	if !ok || proto.Size(message) <= 32<<10 {
		return c.CodecV2.Marshal(v)
	}
	data, err := proto.Marshal(message)
	return mem.BufferSlice{mem.SliceBuffer(data)}, err
}
