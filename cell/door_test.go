package cell_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/internal/frames"
	"github.com/chubbylock/chubby/internal/seeds"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// stranger is somebody who comes to the client port and should not be let in.
type stranger struct {
	files certs.Files // of the certificate that is shown, if there is one
	token string
	plain bool // nothing is encrypted
}

// strangers returns all kinds of them.
func (c *tokenCell) strangers() map[string]stranger {
	must := func(token string, err error) stranger {
		c.clients.check(err)
		return stranger{token: token}
	}
	showing := func(f certs.Files) stranger { return stranger{files: f} }
	other := newAuthority(c.clients.t)
	revoked := c.clients.client("alice")
	c.clients.revoke(c.crl, revoked.Cert)
	time.Sleep(6 * time.Second)
	forger := newTokenIssuer(c.clients.t, c.clients)
	return map[string]stranger{
		"no TLS":                                       {plain: true},
		"no certificate":                               {},
		"a certificate of another authority":           showing(other.client("alice")),
		"an expired certificate":                       showing(c.clients.put(c.clients.IssueClient("alice", -time.Minute))),
		"a revoked certificate":                        showing(revoked),
		"a server's certificate":                       showing(c.clients.put(c.clients.IssueServer([]string{"r1"}, time.Hour))),
		"a replica's certificate":                      showing(c.replicas.put(c.replicas.IssueReplica(certs.Replica{Cell: "local", ID: "r1"}, time.Hour))),
		"a replica's certificate, by the clients' one": showing(c.clients.put(c.clients.IssueReplica(certs.Replica{Cell: "local", ID: "r1"}, time.Hour))),
		"no token, but words":                          {token: "alice"},
		"a token with another key":                     must(forger.Issue("alice", tokenAudience, time.Hour)),
		"a token for somebody else":                    must(c.issuer.Issue("alice", "payments", time.Hour)),
		"an expired token":                             must(c.issuer.Issue("alice", tokenAudience, -time.Minute)),
		"a token of nobody":                            must(c.issuer.Issue("", tokenAudience, time.Hour)),
	}
}

// encryption returns how a stranger encrypts, and what comes to be said over the connection.
func (c *tokenCell) encrypt(s stranger) *tls.Config {
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}
	if s.files.Cert != "" {
		own := must(tls.LoadX509KeyPair(s.files.Cert, s.files.Key))(c.clients.t)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

// overGRPC connects as a program in another language would.
func (c *tokenCell) overGRPC(t *testing.T, s stranger) grpc.ClientConnInterface {
	secure := c.encrypt(s)
	if s.plain {
		secure = nil
	}
	return connect(t, c.Dial, c.Master(), secure).conn
}

// overFrames connects as the library does.
func (c *tokenCell) overFrames(t *testing.T, ctx context.Context, s stranger) grpc.ClientConnInterface {
	conn := must(c.Dial(ctx, c.Master()+":7421"))(t)
	if !s.plain {
		conn = tls.Client(conn, c.encrypt(s))
	}
	l := must(frames.Open(ctx, conn, frames.LinkConfig{Times: frames.Times{Ping: time.Minute, Timeout: time.Minute}, MaxReply: 2 * api.MaxMessage}))(t)
	t.Cleanup(func() { l.Close(); l.Wait() })
	return l
}

// Every call of the protocol refuses a caller that has not said who it is, or cannot, with the same code and without a
// word about what there is, also if he knows somebody's session and handle.
func TestDoor(t *testing.T) {
	inTokenCell(t, 1, func(t *testing.T, ctx context.Context, c *tokenCell) {
		// What a stranger may have heard of, and must not find.
		cl := c.as(t, ctx, "alice")
		acquire(t, ctx, open(t, ctx, cl, "/ls/local/treasure", 0))
		alice := pb.NewChubbyClient(c.link(t, ctx, c.clients.client("alice")))
		session := must(alice.CreateSession(ctx, &pb.CreateSessionRequest{Cell: "local", Nonce: make([]byte, 16), LeaseNs: int64(api.MaxLease)}))(t)
		caller := &pb.Caller{Session: session.GetSession(), Epoch: session.GetEpoch()}
		handle := must(alice.Open(ctx, &pb.OpenRequest{Caller: caller, Mutation: &pb.Mutation{Number: 1, HighestIssued: 1, Outstanding: []uint64{1}}, Path: "/ls/local/treasure", Read: true}))(t)
		ask := func(conn grpc.ClientConnInterface, method protoreflect.MethodDescriptor, s stranger, what string) {
			request := dynamicpb.NewMessage(method.Input())
			set(request, "caller", caller)
			set(request, "mutation", &pb.Mutation{Number: 2, HighestIssued: 2, Outstanding: []uint64{2}})
			for name, value := range map[protoreflect.Name]protoreflect.Value{
				"cell": protoreflect.ValueOfString("local"), "path": protoreflect.ValueOfString("/ls/local/treasure"),
				"handle": protoreflect.ValueOfBytes(handle.GetHandle()), "nonce": protoreflect.ValueOfBytes(make([]byte, 16)), "as": protoreflect.ValueOfString("alice"),
			} {
				if field := request.Descriptor().Fields().ByName(name); field != nil {
					request.Set(field, value)
				}
			}
			ctx := ctx
			if s.token != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.token)
			}
			if err := pb.Error(errOf(invoke(ctx, conn, method, proto.Message(request)))); !errors.Is(err, api.Unauthenticated) || strings.Contains(err.Error(), "treasure") {
				t.Errorf("%s with %s: %v", method.FullName(), what, err)
			}
		}
		for what, s := range c.strangers() {
			direct, native := c.overGRPC(t, s), c.overFrames(t, ctx, s)
			if s.token != "" {
				if _, err := pb.NewCellClient(native).Authenticate(ctx, &pb.AuthenticateRequest{Token: s.token}); !errors.Is(pb.Error(err), api.Unauthenticated) {
					t.Errorf("%s: %v", what, err)
				}
			}
			for _, method := range calls() {
				ask(direct, method, s, what+", over gRPC")
				ask(native, method, s, what+", in frames")
			}
		}
		// The door is open for whom it should be.
		if _, err := pb.NewCellClient(c.overFrames(t, ctx, stranger{files: c.clients.client("bob")})).Status(ctx, &pb.StatusRequest{}); err != nil {
			t.Error("a client:", err)
		}
		if _, err := client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("x"), Clock: celltest.Clock, TLS: certs.Files{CA: c.clients.file}, Credentials: client.TokenFile(filepath.Join(t.TempDir(), "none"))}); err == nil {
			t.Error("a token that is not there")
		}
	})
}

// Those who are let in see what is theirs and what they may read; who may change the ACL of the root sees everything.
func TestLookingTakesRights(t *testing.T) {
	inTLSCell(t, 1, func(t *testing.T, ctx context.Context, c tlsCell) {
		root, alice, bob := c.as(t, ctx, "root"), c.as(t, ctx, "alice"), c.as(t, ctx, "bob")
		for _, who := range []string{"root", "alice"} {
			list := must(root.Open(ctx, "/ls/local/acl/"+who, client.OpenOptions{Write: true, Create: client.File, Contents: []byte("root\n" + who + "\n")}))(t)
			c.clients.check(list.Close(ctx))
		}
		setACL := func(cl *client.Client, path string, acl api.ACL) {
			h := must(cl.Open(ctx, path, client.OpenOptions{ChangeACL: true}))(t)
			c.clients.check(errors.Join(errOf(h.SetACL(ctx, acl)), h.Close(ctx)))
		}
		paths := map[string]string{"open": "/ls/local/open", "private": "/ls/local/private"}
		for _, path := range paths {
			h := open(t, ctx, alice, path, 0)
			if path == paths["private"] {
				setACL(alice, path, api.ACL{Read: "alice", Write: "alice", Change: "alice"})
			}
			acquire(t, ctx, h)
		}
		setACL(root, "/ls/local", api.ACL{Read: "everyone", Write: "everyone", Change: "root"})
		for who, sees := range map[*client.Client]struct {
			name     string
			locks    []string
			sessions []string
			private  bool
		}{
			root:  {"root", []string{"open", "private"}, []string{"alice", "bob", "root"}, true},
			alice: {"alice", []string{"open", "private"}, []string{"alice"}, true},
			bob:   {"bob", []string{"open"}, []string{"bob"}, false},
		} {
			looking := who.Cell()
			locks := must(looking.Locks(ctx, "/ls/local"))(t)
			var names, principals []string
			for _, l := range locks {
				names = append(names, api.MustParsePath(l.Path).Name().Base())
			}
			failIf(t, !slices.Equal(names, sees.locks), "%s sees the locks %q, want %q", sees.name, names, sees.locks)
			sessions := must(looking.Sessions(ctx))(t)
			for _, s := range sessions {
				principals = append(principals, s.Principal)
			}
			if slices.Sort(principals); !slices.Equal(principals, sees.sessions) {
				t.Errorf("%s sees the sessions of %q, want %q", sees.name, principals, sees.sessions)
			}
			quotas := must(looking.Quotas(ctx))(t)
			principals = nil
			for _, q := range quotas {
				principals = append(principals, q.Principal)
			}
			if slices.Sort(principals); !slices.Equal(principals, sees.sessions) {
				t.Errorf("%s sees the quotas of %q, want %q", sees.name, principals, sees.sessions)
			}
			for name, may := range map[string]bool{"private": sees.private, "private/child": sees.private, "open": true, "absent": true} {
				_, err := looking.Explain(ctx, "/ls/local/"+name)
				if may && err != nil || !may && !errors.Is(err, api.PermissionDenied) {
					t.Errorf("%s has %s explained: %v", sees.name, name, err)
				}
				_, err = looking.History(ctx, "/ls/local/"+name)
				if may && err != nil && !errors.Is(err, api.NotFound) || !may && !errors.Is(err, api.PermissionDenied) {
					t.Errorf("%s has the history of %s: %v", sees.name, name, err)
				}
			}
		}
		// That another's session is there is no secret: recipes have to know whether it has ended.
		info, found, err := bob.Cell().FindSession(ctx, alice.Session())
		if !found || err != nil || info.Principal != "" || info.Host != "" || info.PID != 0 || info.Locks != 0 {
			t.Errorf("bob finds alice's session: %+v, %v, %v", info, found, err)
		}
		fails(t, bob.Cell().Backup(ctx, io.Discard), api.PermissionDenied, "bob takes a backup")
		report(t, root.Cell().Backup(ctx, io.Discard), "root takes a backup")
		// What one may not see is refused in the same words, whether it is there or not.
		_, there := bob.Cell().Explain(ctx, "/ls/local/private")
		_, absent := bob.Cell().Explain(ctx, "/ls/local/private/child")
		failIf(t, strings.ReplaceAll(absent.Error(), "private/child", "private") != there.Error(), "%q and %q", there, absent)
		_, there = bob.Cell().History(ctx, "/ls/local/private")
		_, absent = bob.Cell().History(ctx, "/ls/local/private/child")
		failIf(t, strings.ReplaceAll(absent.Error(), "private/child", "private") != there.Error(), "%q and %q", there, absent)
	})
}

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
		if _, err := invoke(ctx, conn, method, request); err != nil && strings.Contains(err.Error(), "this is a bug") {
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
func invoke(ctx context.Context, conn grpc.ClientConnInterface, method protoreflect.MethodDescriptor, request proto.Message) (*dynamicpb.Message, error) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+string(method.Parent().FullName())+"/"+string(method.Name()))
	reply := dynamicpb.NewMessage(method.Output())
	if err == nil {
		err = stream.SendMsg(request)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err == nil {
		err = stream.RecvMsg(reply)
	}
	return reply, err
}
