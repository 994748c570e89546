package client

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/frames"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	bufferSize       = 4 << 10                // bytes, each way: messages are small, and processes hold few of them
	pingTime         = 10 * time.Second       // silence before a ping,
	pingTimeout      = 5 * time.Second        // after which a missing answer closes the connection
	idleTimeout      = time.Minute            // after this, an unused connection is closed
	reconnectFirst   = 50 * time.Millisecond  // the first wait between attempts to connect
	reconnectLongest = 500 * time.Millisecond // and the longest: an election takes little longer
)

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
	address   string
	data      *connection // for the calls of the program
	borrowers int         // outstanding borrow calls; the pool's mu guards it
	replacing bool        // a replacement of the control connection is being tried; the pool's mu guards it

	mu           sync.Mutex      // guards what follows; take no mutex under it
	controlConn  *connection     // see control
	refused      error           // why the last attempt to connect failed, or nil
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
	t := &target{address: address}
	t.data, t.controlConn = p.newConnection(t), p.newConnection(t)
	t.masterCtx, t.endMasterCtx = context.WithCancel(p.values)
	p.targets[address] = t
	return t, nil
}

func (p *pool) linking(t *target, connected func()) linking {
	return linking{
		address: t.address, timeout: p.cfg.DialTimeout, clock: p.cfg.Clock, linked: p.cfg.Meter.connected,
		dial: func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := p.cfg.Dialer(ctx, address)
			if err == nil {
				conn, err = p.encryption.secure(ctx, conn, address)
			}
			if t.noteDial(err); err == nil {
				connected()
			}
			return conn, err
		},
		introduce: p.encryption.introduce,
		frames:    frames.LinkConfig{Times: frames.Times{Ping: pingTime, Timeout: pingTimeout, Idle: idleTimeout}, MaxReply: 2 * api.MaxMessage, Traceparent: tracesOf(p.cfg).traceparentOf()},
		grpc: append([]grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithReadBufferSize(bufferSize),
			grpc.WithWriteBufferSize(bufferSize),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingTime, Timeout: pingTimeout, PermitWithoutStream: true}),
			grpc.WithIdleTimeout(idleTimeout),
			grpc.WithDisableServiceConfig(),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(2*api.MaxMessage), grpc.MaxCallSendMsgSize(2*api.MaxMessage)),
		}, tracesOf(p.cfg).traceOptions()...),
	}
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
	p.running.Go(t.data.close)
	p.running.Go(t.control().close)
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
