package client

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// What a connection is set to.
const (
	bufferSize       = 4 << 10                // bytes, each way: messages are small, and processes hold few of them
	pingTime         = 10 * time.Second       // a silent connection is asked for a sign of life
	pingTimeout      = 5 * time.Second        // and given up without one
	idleTimeout      = time.Minute            // after which a connection without calls goes
	reconnectFirst   = 50 * time.Millisecond  // the first wait between attempts to connect
	reconnectLongest = 500 * time.Millisecond // and the longest: an election takes little longer
)

// pool holds the connections to each replica that was talked to.
type pool struct {
	cfg  Config
	base context.Context //nolint:containedctx // the values of the one New or Dial was given; it never ends

	running sync.WaitGroup  // those who try another connection, or close one; Add only under mu, and not after closed
	alive   context.Context //nolint:containedctx // it is theirs: ended by close
	stop    context.CancelFunc

	mu      sync.Mutex // guards what follows
	targets map[string]*target
	closed  bool
}

// target is one replica, at one address. Those who talk to it while it is
// believed to be the master stop when another is found to be.
//
// It has two connections, each made when it is needed first. Whatever a program asks
// for, however often and however large, goes over one. What keeps sessions, and what gives
// back what they hold, goes over the other, and waits neither for a place among 2,000 calls
// nor behind megabytes.
type target struct {
	address string
	*line        // for the calls of the program
	lent    int  // to those who ask it whether or not it is the master; the pool's mu guards it
	trying  bool // another connection for the sessions; the pool's mu guards it

	mu      sync.Mutex      // guards what follows
	own     *line           // for what keeps sessions, and the search for the master: see kept
	refused error           // why the last attempt to connect failed; nil if it did not
	replica string          // its id, when it last said that it is the master; empty if it never has
	epoch   uint64          // in which it was
	reign   context.Context //nolint:containedctx // it is the reign's, not a call's: ended when another replica is found to be the master
	end     context.CancelFunc
}

func newPool(ctx context.Context, cfg Config) *pool {
	p := &pool{cfg: cfg, base: context.WithoutCancel(ctx), targets: map[string]*target{}}
	p.alive, p.stop = context.WithCancel(p.base)
	return p
}

// get returns the replica at an address. It does not connect yet.
func (p *pool) get(address string) (*target, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.enter(address)
}

// lend is get for those who ask a replica for itself, and not as the master: until
// giveBack is called, it is not forgotten because another is the master.
func (p *pool) lend(address string) (t *target, giveBack func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, err = p.enter(address); err != nil {
		return nil, nil, err
	}
	t.lent++
	return t, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		t.lent--
	}, nil
}

// enter is get; mu is held.
func (p *pool) enter(address string) (*target, error) {
	if p.closed {
		return nil, closedError()
	}
	if t, ok := p.targets[address]; ok {
		return t, nil
	}
	t := &target{address: address}
	var err error
	if t.line, err = p.newLine(t); err == nil {
		t.own, err = p.newLine(t)
	}
	if err != nil {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "connect", Path: address, Message: "not an address", Err: err}
	}
	t.reign, t.end = context.WithCancel(p.base)
	p.targets[address] = t
	return t, nil
}

func (p *pool) options(t *target, l *line) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := p.cfg.Dialer(ctx, address)
			if t.dialled(err); err == nil {
				l.heard.Store(int64(p.cfg.Clock()))
			}
			return conn, err
		}),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingTime, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: reconnectFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectLongest},
			MinConnectTimeout: p.cfg.DialTimeout,
		}),
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithDisableServiceConfig(),
		grpc.WithUnaryInterceptor(refuseUnary), grpc.WithStreamInterceptor(refuseStream),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(2*api.MaxMessage), grpc.MaxCallSendMsgSize(2*api.MaxMessage)),
	}
}

// keep forgets the replicas at all other addresses, so that a cell whose
// members come and go does not leave connections behind. One that is being asked is
// left for the next time.
func (p *pool) keep(addresses []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, t := range p.targets {
		if t.lent == 0 && !slices.Contains(addresses, address) {
			delete(p.targets, address)
			p.part(t)
		}
	}
}

// close closes every connection; no new one is made.
func (p *pool) close() {
	p.mu.Lock()
	for _, t := range p.targets {
		p.part(t)
	}
	p.targets, p.closed = nil, true
	p.mu.Unlock()
	p.stop()
	p.running.Wait()
}

// part closes the connections to t, of which nobody is to wait for another, or for what
// cannot be written: gRPC takes up to 5 s for each. mu is held.
func (p *pool) part(t *target) {
	t.supersede()
	p.running.Go(t.line.close)
	p.running.Go(t.kept().close)
}

// supersede tells those who talk to t that another replica is the master.
func (t *target) supersede() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
	t.reign, t.end = context.WithCancel(context.WithoutCancel(t.reign)) // for those who come when it is master again
}

// claimed takes note that t says that it is the master.
func (t *target) claimed(reply *chubbypb.LocateReply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replica, t.epoch = reply.GetReplica(), reply.GetEpoch()
}

// is reports whether that is t, in the same epoch, by whichever of its addresses.
func (t *target) is(a answer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.address == a.address || t.replica != "" && t.replica == a.reply.GetReplica() && t.epoch == a.reply.GetEpoch()
}

// until calls cancel when another replica is found to be the master; the
// function it returns stops that.
func (t *target) until(cancel func()) (stop func() bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return context.AfterFunc(t.reign, cancel)
}
