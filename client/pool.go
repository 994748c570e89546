package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/frames"
	"github.com/chubbylock/chubby/session"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const (
	bufferSize       = 4 << 10                // bytes, each way: messages are small, and processes hold few of them
	pingTime         = 10 * time.Second       // silence before a ping,
	pingTimeout      = 5 * time.Second        // after which a missing answer closes the connection
	idleTimeout      = time.Minute            // after this, an unused connection is closed
	reconnectFirst   = 50 * time.Millisecond  // the first wait between attempts to connect
	reconnectLongest = 500 * time.Millisecond // and the longest: an election takes little longer
)

// lateAfter is how long a call may lack an answer before the client asks the replicas for another master. A
// healthy master answers sooner, even if it waits for a disk, and an election takes less.
const lateAfter = time.Second

type pool struct {
	cfg        Config
	encryption *encryption // constant after the first call

	values context.Context //nolint:containedctx // the values of the context that New or Dial was given; it never ends

	running sync.WaitGroup  // goroutines that try or close a connection; Add only under mu, and not after closed
	life    context.Context //nolint:containedctx // of these goroutines: ended by close
	stop    context.CancelFunc

	mu      sync.Mutex // guards what follows, and fields of targets that say so; target.mu may be taken under it
	targets map[string]*target
	closed  bool
}

// target is one replica, at one address. Calls to it as the master are cancelled when another replica is
// found to be the master.
//
// It has two connections, each made at first use. The calls of the program use the data connection.
// KeepAlives, and calls that give something back (EndSession, Release, Close), use the control connection:
// there they wait neither for the 2,000 calls that a replica takes over one connection, nor behind megabytes.
type target struct {
	pool      *pool
	address   string
	data      *connection // for the calls of the program
	borrowers int         // outstanding borrow calls; the pool's mu guards it
	replacing bool        // a replacement of the control connection is being tried; the pool's mu guards it

	mu           sync.Mutex      // guards what follows; take no mutex under it
	controlConn  *connection     // see control
	replica      string          // its id at its last claim to be the master, or empty
	epoch        uint64          // of that claim
	masterCtx    context.Context //nolint:containedctx // of the calls to it as the master: ended when another replica is found to be the master
	endMasterCtx context.CancelFunc
}

func newPool(ctx context.Context, cfg Config) *pool {
	p := &pool{cfg: cfg, values: context.WithoutCancel(ctx), targets: map[string]*target{}}
	p.life, p.stop = context.WithCancel(p.values)
	return p
}

func (p *pool) get(address string) (*target, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.getLocked(address)
}

// borrow is get for calls to any replica, master or not: until giveBack is called, retain does not close its
// connections.
func (p *pool) borrow(address string) (t *target, giveBack func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, err = p.getLocked(address); err != nil {
		return nil, nil, err
	}
	t.borrowers++
	return t, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		t.borrowers--
	}, nil
}

// getLocked is get; mu is held.
func (p *pool) getLocked(address string) (*target, error) {
	if p.closed {
		return nil, closedError()
	}
	if t, ok := p.targets[address]; ok {
		return t, nil
	}
	t := &target{pool: p, address: address}
	t.data, t.controlConn = newConnection(t), newConnection(t)
	t.masterCtx, t.endMasterCtx = context.WithCancel(p.values)
	p.targets[address] = t
	return t, nil
}

func (t *target) dial(ctx context.Context) (net.Conn, error) {
	conn, err := t.pool.cfg.Dialer(ctx, t.address)
	if err == nil {
		return t.pool.encryption.secure(ctx, conn, t.address)
	}
	return nil, err
}

func (p *pool) framesConfig() frames.LinkConfig {
	return frames.LinkConfig{
		Times: frames.Times{Ping: pingTime, Timeout: pingTimeout, Idle: idleTimeout}, MaxReply: 2 * api.MaxMessage, Traceparent: traceparentFor(p.cfg),
	}
}

func (p *pool) grpcOptions() []grpc.DialOption {
	return append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingTime, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(2*api.MaxMessage), grpc.MaxCallSendMsgSize(2*api.MaxMessage)),
	}, traceOptions(p.cfg)...)
}

// retain closes the connections to all replicas at other addresses, as the members of a cell change. Borrowed
// ones wait for the next retain.
func (p *pool) retain(addresses []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, t := range p.targets {
		if t.borrowers == 0 && !slices.Contains(addresses, address) {
			delete(p.targets, address)
			p.closeTarget(t)
		}
	}
}

func (p *pool) close() {
	p.mu.Lock()
	for _, t := range p.targets {
		p.closeTarget(t)
	}
	p.targets, p.closed = nil, true
	p.mu.Unlock()
	p.stop()
	p.running.Wait()
}

// closeTarget closes the connections to t, each in a goroutine of its own: over gRPC this takes up to 5 s
// where the connection accepts no data. mu is held.
func (p *pool) closeTarget(t *target) {
	t.supersede()
	p.running.Go(t.data.Close)
	p.running.Go(t.control().Close)
}

// supersede cancels the calls to t as the master, because another replica is the master.
func (t *target) supersede() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endMasterCtx()
	t.masterCtx, t.endMasterCtx = context.WithCancel(context.WithoutCancel(t.masterCtx)) // for its next time as the master
}

func (t *target) noteClaim(reply *chubbypb.LocateReply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replica, t.epoch = reply.GetReplica(), reply.GetEpoch()
}

// matches reports whether a is an answer of t as the master of its last claimed epoch, at any address.
func (t *target) matches(a locateAnswer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	//mutant: return t.address == a.address || false && t.replica != "" && t.replica == a.reply.GetReplica() && t.epoch == a.reply.GetEpoch()
	return t.address == a.address || t.replica != "" && t.replica == a.reply.GetReplica() && t.epoch == a.reply.GetEpoch()
}

// onSuperseded calls cancel when another replica is the master; the function it returns stops that.
func (t *target) onSuperseded(cancel func()) (stop func() bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return context.AfterFunc(t.masterCtx, cancel)
}

// connection is one of the two connections to a replica. It connects at first use.
type connection struct {
	*channel
	chubby chubbypb.ChubbyClient
	cell   chubbypb.CellClient
}

func newConnection(t *target) *connection {
	c := newChannel(t)
	return &connection{channel: c, chubby: chubbypb.NewChubbyClient(c), cell: chubbypb.NewCellClient(c)}
}

func (t *target) control() *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.controlConn
}

// checkConnection is called when the answer to a KeepAlive or to a Locate is late. If the connection was
// silent for as long as silent says, it may be dead although the replica is up: a firewall forgets
// connections, and pings take longer than a lease. So it tries a second connection, which replaces the first
// if the replica answers over it alone. Otherwise the first stays: the replica may take no more connections,
// or may be slow to prove that it is the master, as for a KeepAlive.
func (t *target) checkConnection(old *connection, silent time.Duration) {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Clock()
	//mutant: if old.GetState() == connectivity.Shutdown {
	if old.GetState() != connectivity.Ready {
		return // about to connect
	}
	if p.closed || p.targets[t.address] != t || t.replacing || t.control() != old || now.Sub(session.Instant(old.lastHeard.Load())) < silent {
		return
	}
	next := newConnection(t)
	t.replacing = true
	p.running.Go(func() { t.tryReplacement(old, next, now) })
}

// tryReplacement makes next the control connection if the replica answers a Locate over it and not over the
// old one. Without either answer within DialTimeout, the old one stays until the next late answer.
func (t *target) tryReplacement(old, next *connection, since session.Instant) {
	p := t.pool
	ctx, cancel := context.WithTimeout(p.life, p.cfg.DialTimeout)
	defer cancel()
	asked, answered := make(chan struct{}), false
	go func() {
		defer close(asked)
		_, err := old.cell.Locate(ctx, &chubbypb.LocateRequest{Cell: p.cfg.Cell})
		answered = err == nil || isAnswer(err)
		cancel() // the old one works, or is broken and reconnects
	}()
	// WaitForReady repeats a refused attempt to connect, as the cause of the silence may end soon.
	_, err := next.cell.Locate(ctx, &chubbypb.LocateRequest{Cell: p.cfg.Cell}, grpc.WaitForReady(true))
	if err == nil { // the old one was asked first, but this busy machine may not have read its answer
		select {
		case <-asked:
		case <-time.After(hedgeDelay):
		}
	}
	cancel()
	<-asked
	p.mu.Lock()
	t.replacing = false
	superfluous := next
	if err == nil && !answered && p.targets[t.address] == t && session.Instant(old.lastHeard.Load()) <= since {
		t.mu.Lock()
		t.controlConn, superfluous = next, old
		t.mu.Unlock()
	}
	p.mu.Unlock()
	superfluous.Close() // the other connection repeats its pending calls
}

// explainError returns the error of a call as chubbypb.Error does, and for an unreachable replica the
// system's words, without gRPC's three layers.
func (t *target) explainError(err error) error {
	if older := t.olderError(err); older != nil {
		return older
	}
	err = chubbypb.Error(err)
	var e *api.Error
	var failed connectError
	if !errors.As(err, &e) || e.Code != api.Unavailable || !errors.As(e.Err, &failed) {
		return err
	}
	own := *e
	own.Message, own.Err = systemText(failed.cause), failed.cause
	return &own
}

// olderError returns the error of a call that an earlier replica does not know, or nil. Its code ends the
// call: retries are useless.
func (t *target) olderError(err error) error {
	s, is := status.FromError(err)
	//mutant: if !is || s.Code() != codes.OK {
	if !is || s.Code() != codes.Unimplemented {
		return nil
	}
	method := s.Message() // "unknown method X for service Y"; over frames without the service
	if _, rest, found := strings.Cut(method, "method "); found {
		method, _, _ = strings.Cut(rest, " ")
		method = path.Base(strings.Trim(method, `"`))
	}
	return &api.Error{Code: api.InvalidArgument, Err: OlderMaster, Message: fmt.Sprintf(
		"%s does not know %s yet, and nothing was done: upgrade the replicas of the cell (chubbyctl cell upgrade status)", t.unnamed(), method)}
}

func (t *target) unnamed() string { return "the master at " + t.address }

// withVersion adds the cell and its master's version to an error of olderError; others are unchanged.
func (t *target) withVersion(ctx context.Context, e *api.Error) *api.Error {
	if !errors.Is(e, OlderMaster) {
		return e
	}
	ctx, cancel := context.WithTimeout(ctx, lateAfter)
	defer cancel()
	reply, err := t.data.cell.Status(ctx, &chubbypb.StatusRequest{})
	if err != nil {
		return e
	}
	own, r := *e, reply.GetReplica()
	own.Replica, own.Cell = r.GetId(), reply.GetCell()
	own.Message = strings.Replace(e.Message, t.unnamed(), fmt.Sprintf("the master of cell %s, %s, version %s,", own.Cell, own.Replica, r.GetVersion()), 1)
	return &own
}
