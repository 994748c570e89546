package client

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/frames"
	"github.com/chubbylock/chubby/session"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
)

const testCellID = "00112233445566778899aabbccddeeff"

// fake is a cell of three addresses with one state behind them. It keeps just
// enough of the protocol to be told apart from a cell by nothing the client
// does, and checks what every client must keep to. Tests get at each call
// through hook.
type fake struct {
	chubbypb.UnimplementedChubbyServer
	t       *testing.T
	began   time.Time
	servers []interface{ Stop() }
	ends    []func()    // close what the test has opened
	single  atomic.Bool // its masters give one reply to each KeepAlive

	mu        sync.Mutex // guards what follows
	pipes     map[string]*bufconn.Listener
	conns     map[string][]net.Conn
	down      map[string]bool // refuses connections
	hook      func(c seen) verb
	master    string
	epoch     uint64
	turn      chan struct{} // closed at each new epoch
	calls     []seen
	sessions  map[string]*fakeSession
	contents  []byte
	writes    int
	gen       uint64
	holder    *fakeHold
	delayed   time.Duration
	tickets   int
	gone      map[string]bool // handles whose nodes are gone
	evicted   []time.Duration // when revoked locks became free
	cacheable bool            // what GetStat tells
	reusable  bool            // what Open tells, of files that exist
	lingers   bool            // does not end the stream of an Acquire after the grant
	old       bool            // those that are served from now on know no frames

	cacheLease *time.Duration // is granted; nil if sessions have no cache leases
}

type fakeSession struct {
	id       uint64
	lease    time.Duration
	number   uint64 // of grants
	granted  time.Time
	end      time.Time // as the cell promised
	events   []*chubbypb.Event
	sequence uint64
	acked    uint64
	told     uint64 // sequence of the newest event that a reply has carried
	owed     uint64 // sequence of the newest event when a call was last answered
	received uint64
	news     chan struct{} // capacity 1
	parked   int
	answers  map[uint64]fakeAnswer
	finished map[uint64]bool
	handles  map[string]uint64 // ids by token
	known    map[uint64]bool   // handles that were used in this epoch: events come for them only
	doomed   uint64            // sequence of the event that says so; 0 if it is not
	ended    bool
}

type fakeAnswer struct {
	reply proto.Message
	err   error
}

type fakeHold struct {
	session *fakeSession
	handle  string
	gen     uint64
	revoked uint64 // sequence of the event that says so; 0 if it is not
}

// seen is one call that reached an address.
type seen struct {
	at      time.Duration // since the test began
	address string
	method  string
	request proto.Message
	number  uint64
	nth     int // of this method, from 1
}

// inBubble runs a test in virtual time, on a cell.
func inBubble(t *testing.T, test func(t *testing.T, f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{
			old: *withoutFrames,
			t:   t, began: time.Now(), pipes: map[string]*bufconn.Listener{}, conns: map[string][]net.Conn{}, down: map[string]bool{},
			master: "a:1", epoch: 5, turn: make(chan struct{}), sessions: map[string]*fakeSession{}, gen: 100, gone: map[string]bool{},
		}
		for _, address := range addresses() {
			f.serve(address, 2000)
		}
		defer f.finish()
		test(t, f)
	})
}

// withoutFrames has the cell speak gRPC only, as replicas before version 0.2.0 do.
var withoutFrames = flag.Bool("without-frames", false, "test with a cell that speaks gRPC only")

// serve has an address answered, by a cell that takes so many calls over a connection. A call
// that takes a while has come to its end before the bubble has: virtual time stands still then,
// and a goroutine that sleeps never wakes up.
func (f *fake) serve(address string, most int) {
	pipe := bufconn.Listen(1 << 16)
	f.pipes[address] = pipe
	options := []grpc.ServerOption{
		grpc.WaitForHandlers(true), grpc.MaxConcurrentStreams(uint32(most)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(f.unary(address)), grpc.StreamInterceptor(f.stream(address)),
	}
	framed := frames.NewServer(frames.ServerConfig{
		Times:    frames.Times{Ping: time.Hour, Timeout: time.Hour, Idle: time.Hour},
		MaxCalls: most, MaxRequest: api.MaxMessage, Serve: f.framed(address),
	})
	if !f.old {
		options = append(options, grpc.Creds(framed.Credentials()))
	}
	s := grpc.NewServer(options...)
	for _, r := range []grpc.ServiceRegistrar{s, framed} {
		chubbypb.RegisterChubbyServer(ofRelease{r}, f)
		chubbypb.RegisterCellServer(r, fakeCell{fake: f, address: address})
	}
	f.servers = append(f.servers, s, framed)
	go func() { _ = s.Serve(pipe) }()
}

// ofRelease registers each method by the name that the last release has for it, as the library has to call it.
type ofRelease struct{ grpc.ServiceRegistrar }

func (r ofRelease) RegisterService(desc *grpc.ServiceDesc, impl any) {
	own := *desc
	own.Methods = slices.Clone(desc.Methods)
	for i, m := range own.Methods {
		if former := chubbypb.FormerName("/" + desc.ServiceName + "/" + m.MethodName); former != "" {
			own.Methods[i].MethodName = path.Base(former)
		}
	}
	r.ServiceRegistrar.RegisterService(&own, impl)
}

func addresses() []string { return []string{"a:1", "b:1", "c:1"} }

func (f *fake) config() Config {
	return Config{
		Cell: "foo", Servers: addresses(), Dialer: f.dial,
		Clock: func() session.Instant { return session.Instant(time.Since(f.began)) },
	}
}

func (f *fake) dial(ctx context.Context, address string) (net.Conn, error) {
	f.mu.Lock()
	pipe, down := f.pipes[address], f.down[address]
	f.mu.Unlock()
	if down || pipe == nil {
		return nil, fmt.Errorf("dial %s: connection refused", address)
	}
	conn, err := pipe.DialContext(ctx)
	if err == nil {
		f.locked(func() { f.conns[address] = append(f.conns[address], conn) })
	}
	return conn, err
}

// client opens a session, which is closed when the test ends.
func (f *fake) client(cfg Config) *Client {
	f.t.Helper()
	return f.closing(ok(New(f.t.Context(), cfg))(f.t))
}

// session is client, over a Cell.
func (f *fake) session(cell *Cell, cfg SessionConfig) *Client {
	f.t.Helper()
	return f.closing(ok(cell.NewSession(f.t.Context(), cfg))(f.t))
}

func (f *fake) closing(c *Client) *Client {
	f.ends = append(f.ends, func() {
		if safe := c.State() == session.Safe; !errors.Is(c.Err(), Closed) {
			if err := c.Close(f.t.Context()); err != nil && safe {
				f.t.Errorf("Close: %v", err)
			}
		}
	})
	return c
}

// dialled returns a Cell, which is closed when the test ends.
func (f *fake) dialled(cfg Config) *Cell {
	f.t.Helper()
	cell := ok(Dial(f.t.Context(), cfg))(f.t)
	f.ends = append(f.ends, func() { _ = cell.Close() }) // it never fails
	return cell
}

// finish closes what is open, the newest first, while everybody answers again.
func (f *fake) finish() {
	f.script(nil)
	f.heal()
	for _, end := range slices.Backward(f.ends) {
		end()
	}
	for _, s := range f.servers {
		s.Stop()
	}
}

// cut breaks all connections to an address and refuses new ones.
func (f *fake) cut(list ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, address := range list {
		f.down[address] = true
		for _, conn := range f.conns[address] {
			_ = conn.Close()
		}
		f.conns[address] = nil
	}
}

func (f *fake) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.down)
}

// elect makes an address the master of a new epoch.
func (f *fake) elect(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.master, f.epoch = address, f.epoch+1
	for _, s := range f.sessions {
		s.events, s.sequence, s.acked, s.received, s.told, s.owed, s.number = nil, 0, 0, 0, 0, 0, 0
		s.end = time.Now().Add(s.lease)
		clear(s.known)
		s.queue(&chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_MASTER_FAILED_OVER})
		if h := f.holder; h != nil && h.session == s && h.revoked > 0 {
			f.tellLoss(h, chubbypb.EndReason_END_REASON_BREAK)
		}
		if s.doomed > 0 {
			s.doom()
		}
	}
	close(f.turn)
	f.turn = make(chan struct{})
}

// script sets the hook.
func (f *fake) script(hook func(c seen) verb) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// heard returns the calls of a method that reached the cell.
func (f *fake) heard(method string) []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.calls), func(c seen) bool { return c.method != method })
}

func (f *fake) unary(address string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return f.through(ctx, address, info.FullMethod, req.(proto.Message), func() (any, error) {
			if err := f.office(address, info.FullMethod, req); err != nil {
				return nil, chubbypb.Status(err)
			}
			return handler(ctx, req)
		})
	}
}

func (f *fake) stream(address string) grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if info.FullMethod == chubbypb.Chubby_KeepAlives_FullMethodName {
			return f.serveKeepAlives(address, s)
		}
		req := &chubbypb.AcquireRequest{}
		if err := s.RecvMsg(req); err != nil {
			return err
		}
		_, err := f.through(s.Context(), address, info.FullMethod, req, func() (any, error) {
			if err := f.office(address, info.FullMethod, req); err != nil {
				return nil, chubbypb.Status(err)
			}
			return nil, f.Acquire(req, &grpc.GenericServerStream[chubbypb.AcquireRequest, chubbypb.AcquireReply]{ServerStream: s})
		})
		return err
	}
}

func (f *fake) through(ctx context.Context, address, full string, req proto.Message, next func() (any, error)) (any, error) {
	c := seen{at: time.Since(f.began), address: address, method: full[1+len("chubby.v1.Chubby"):], request: req}
	if c.method[0] != '/' {
		c.method = full[len("/chubby.v1.Cell"):]
	}
	c.method = c.method[1:]
	if m, ok := req.(interface{ GetMutation() *chubbypb.Mutation }); ok {
		c.number = m.GetMutation().GetNumber()
	}
	f.mu.Lock()
	for _, o := range f.calls {
		if o.method == c.method {
			c.nth++
		}
	}
	c.nth++
	f.calls = append(f.calls, c)
	hook := f.hook
	f.mu.Unlock()
	if hook != nil {
		if v := hook(c); v != nil {
			return v(ctx, next)
		}
	}
	return next()
}

// office refuses what is not for this master in this epoch.
func (f *fake) office(address, method string, req any) error {
	if method == "/chubby.v1.Cell/Locate" || method == "/chubby.v1.Cell/Status" || method == "/chubby.v1.Cell/Members" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if address != f.master {
		return &api.Error{Code: api.NotMaster, Replica: address, Master: f.master, Message: "not the master"}
	}
	if k, ok := req.(interface{ GetCaller() *chubbypb.Caller }); ok {
		s := f.sessions[string(k.GetCaller().GetSession())]
		if s == nil || s.ended {
			return api.Errorf(api.SessionExpired, "no such session")
		}
		_, keepAlive := req.(*chubbypb.KeepAliveRequest)
		if !keepAlive && k.GetCaller().GetEpoch() != f.epoch {
			return api.Errorf(api.StaleEpoch, "epoch %d, not %d", f.epoch, k.GetCaller().GetEpoch())
		}
		if s.owed > s.acked && time.Now().After(s.end) { // nothing is extended while something is not acknowledged
			f.end(s)
			return api.Errorf(api.SessionExpired, "its lease ran out")
		}
		if !keepAlive && s.doomed > 0 {
			return api.Errorf(api.SessionExpired, "it is being ended")
		}
	}
	if k, ok := req.(interface{ GetHandle() []byte }); ok {
		for _, s := range f.sessions {
			if id, ok := s.handles[string(k.GetHandle())]; ok {
				s.known[id] = true
			}
		}
		if f.gone[string(k.GetHandle())] {
			return api.Errorf(api.HandleClosed, "the node is gone")
		}
	}
	return nil
}

// only returns the only session.
func (f *fake) only() *fakeSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sessions {
		return s
	}
	return nil
}
