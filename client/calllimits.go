package client

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// callClass is a class of calls. A limit applies to the pending calls of a class, of all sessions of a Cell.
// A replica takes 2,000 calls over one connection, and gRPC holds back further ones, which would look like a
// silent master. So calls wait here, before CallTimeout begins, and calls that give something back wait
// separately.
type callClass uint8

const (
	// classUnlimited is for waits for locks, which requestNumbers limits, and for calls that each session makes
	// one at a time.
	classUnlimited callClass = 0
	classRead      callClass = 1
	classChange    callClass = 2
	// classCleanup is for calls that give something back, over the control connection.
	classCleanup callClass = 3
	// classAudit is for audits, over the control connection, as the lease may not be extended before an
	// audit's end.
	classAudit callClass = 4
	// classRenewal is for renewals of cache leases, over the control connection, as a session that
	// only uses its cache needs no other.
	classRenewal callClass = 5

	classLarge callClass = 6 // of changes of more than largeRequest bytes, which are of classChange too
)

const (
	maxReads        = 200                // a replica has room for as many of the largest replies
	maxChanges      = api.MaxOutstanding // more than one session can have
	maxCleanupCalls = 128                // few beside the KeepAlives on the same connection
	maxAuditCalls   = 64                 // as above
	maxRenewals     = 64                 // as above; each takes a round trip
)

// At most maxLargeChanges changes of more than largeRequest bytes are pending: with more, a replica closes
// the connection, again at each retry.
const (
	largeRequest    = 16 << 10
	maxLargeChanges = 128
)

// callLimits has a channel for each limited class of calls, with room for those that may be pending.
type callLimits [classLarge + 1]chan struct{}

func newCallLimits() callLimits {
	return callLimits{
		classRead:    make(chan struct{}, maxReads),
		classChange:  make(chan struct{}, maxChanges),
		classLarge:   make(chan struct{}, maxLargeChanges),
		classCleanup: make(chan struct{}, maxCleanupCalls),
		classAudit:   make(chan struct{}, maxAuditCalls),
		classRenewal: make(chan struct{}, maxRenewals),
	}
}

// slots are the channels in which a call needs a slot, in the order of taking; nil ones do not count.
type slots [2]chan struct{}

// slotsFor returns the slots for a call. A large change waits among large ones first, without a small slot.
func (r callLimits) slotsFor(k call) slots {
	if k.class == classChange && k.size > largeRequest {
		return slots{r[classLarge], r[classChange]}
	}
	//mutant: if k.class == classCleanup { return slots{} }; return slots{r[k.class]}
	return slots{r[k.class]}
}

// take takes a slot in each channel, and reports whether it had to wait. After an error (the end of ctx, or of
// the session) it has no slots.
func (s slots) take(ctx context.Context, ended <-chan struct{}) (waited bool, err error) {
	for i, slot := range s {
		if slot == nil {
			continue
		}
		select {
		case slot <- struct{}{}:
			continue
		default:
			waited = true
		}
		select {
		case slot <- struct{}{}:
		case <-ctx.Done():
			err = contextError(ctx)
		case <-ended:
			err = errEnded
		}
		if err != nil {
			giveBack(s[:i])
			return true, err
		}
	}
	return waited, nil
}

func (s slots) leave() { giveBack(s[:]) }

func giveBack(taken []chan struct{}) {
	for _, slot := range taken {
		if slot != nil {
			<-slot
		}
	}
}

// errNoQueuePlace says that a session, or its Cell, has the maximum of requests in queues.
var errNoQueuePlace = errors.New("there is no place for another wait")

// requestNumbers allocates the request numbers of a session. A number is outstanding from allocate until
// finish. The master keeps the answers to outstanding numbers, for retries, and drops all others: an early
// finish loses the answer of a retry, and a missing one keeps it permanently.
type requestNumbers struct {
	polling chan struct{} // capacity 1: full while a request without a queue place tries its lock
	places  chan struct{} // full while as many requests of all sessions of the Cell are in queues as may be

	mu          sync.Mutex // guards what follows; take no mutex under it
	last        uint64
	outstanding []uint64            // ascending; at most api.MaxOutstanding
	waiting     map[uint64]struct{} // the outstanding numbers of requests in queues of locks
	freed       chan struct{}       // closed when a number is finished; nil without a waiter
	vacated     chan struct{}       // closed when a waiting one is finished; nil without a waiter
}

func newRequestNumbers(places chan struct{}) *requestNumbers {
	return &requestNumbers{
		polling: make(chan struct{}, 1),
		places:  places,
		waiting: map[uint64]struct{}{},
	}
}

const (
	// maxOrdinary is how many numbers may be outstanding before allocate waits. It leaves
	// room for maxCleanups and one allocateNow.
	maxOrdinary = api.MaxOutstanding - maxCleanups - 1
	// maxCleanups limits the additional requests that give something back: a Release must not wait for
	// changes, which may take a lease.
	maxCleanups = 32
	// maxSessionWaits limits a session's requests in queues of locks, as a Release or a Close, which end such
	// a wait, need room.
	maxSessionWaits = api.MaxOutstanding * 3 / 4
	// maxCellWaits is the same for all sessions of a Cell: half of a replica's calls over one connection.
	maxCellWaits = 1_000
)

// allocate returns a number once fewer than maxOrdinary are outstanding, or, for classCleanup, maxCleanups
// more. For a wait for a lock (classUnlimited) it fails with errNoQueuePlace at once if maxSessionWaits
// requests of the session, or maxCellWaits of the Cell, are in queues.
func (n *requestNumbers) allocate(ctx context.Context, ended <-chan struct{}, class callClass) (uint64, error) {
	for {
		number, freed, err := n.tryAllocate(class)
		if number == 0 && err == nil {
			if err = awaitClosed(ctx, ended, freed); err == nil {
				continue
			}
		}
		return number, err
	}
}

// tryAllocate is allocate without a wait: number is 0 without room; freed is closed when a retry may succeed.
func (n *requestNumbers) tryAllocate(class callClass) (number uint64, freed <-chan struct{}, err error) {
	waits, limit := class == classUnlimited, maxOrdinary
	if class == classCleanup {
		limit += maxCleanups
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case waits && len(n.waiting) >= maxSessionWaits:
		return 0, nil, errNoQueuePlace
	case len(n.outstanding) >= limit:
		if n.freed == nil {
			n.freed = make(chan struct{})
		}
		return 0, n.freed, nil
	case !waits:
		return n.allocateLocked(), nil, nil
	}
	select {
	case n.places <- struct{}{}:
		number = n.allocateLocked()
		n.waiting[number] = struct{}{}
		return number, nil, nil
	default:
		return 0, nil, errNoQueuePlace
	}
}

func (n *requestNumbers) allocateLocked() uint64 {
	n.last++
	n.outstanding = append(n.outstanding, n.last)
	return n.last
}

// finish ends a number: its answer is known, and will not be requested again.
func (n *requestNumbers) finish(number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := slices.BinarySearch(n.outstanding, number); ok {
		n.outstanding = slices.Delete(n.outstanding, i, i+1)
	}
	if _, waited := n.waiting[number]; waited {
		delete(n.waiting, number)
		<-n.places
		if n.vacated != nil {
			close(n.vacated)
			n.vacated = nil
		}
	}
	if n.freed != nil {
		close(n.freed)
		n.freed = nil
	}
}

// releasePlaces gives back the queue places of an ended session. The janitor's goroutine calls it, since the
// owner of a lost session may close it much later.
func (n *requestNumbers) releasePlaces() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for number := range n.waiting {
		delete(n.waiting, number)
		<-n.places
	}
}

// allocateNow returns a number at once. It is for the janitor, which undoes one request at a time, and must
// not wait for room that only it can make.
func (n *requestNumbers) allocateNow() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.allocateLocked()
}

func (n *requestNumbers) wireMutation(number uint64) *chubbypb.Mutation {
	n.mu.Lock()
	defer n.mu.Unlock()
	return &chubbypb.Mutation{Number: number, HighestIssued: n.last, Outstanding: slices.Clone(n.outstanding)}
}

func (n *requestNumbers) countWaiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.waiting)
}

// placeVacated returns a channel that is closed when a queue place may be free.
func (n *requestNumbers) placeVacated() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.vacated == nil {
		n.vacated = make(chan struct{})
	}
	return n.vacated
}

// traceparent is the header that names a call's trace (W3C Trace Context).
const traceparent = "traceparent"

// traceparentKey finds the traceparent of an attempt in its context; KeepAlives and other calls outside a
// trace have none.
type traceparentKey struct{}

func traceparentOf(ctx context.Context) string {
	text, _ := ctx.Value(traceparentKey{}).(string)
	return text
}

// traceparentFor is for frames.LinkConfig: nil if no call is traced.
func traceparentFor(cfg Config) func(context.Context) string {
	if cfg.Tracer == nil {
		return nil
	}
	return traceparentOf
}

func traceOptions(cfg Config) []grpc.DialOption {
	if cfg.Tracer == nil {
		return nil
	}
	with := func(ctx context.Context) context.Context {
		if text := traceparentOf(ctx); text != "" {
			return metadata.AppendToOutgoingContext(ctx, traceparent, text)
		}
		return ctx
	}
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
			next grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return next(with(ctx), method, request, reply, conn, options...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
			next grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return next(with(ctx), desc, conn, method, options...)
		}),
	}
}

// untraced returns ctx without its span, for work after the call has ended.
func untraced(ctx context.Context, cfg Config) context.Context {
	if cfg.Tracer == nil {
		return ctx
	}
	return context.WithValue(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), traceparentKey{}, "")
}

// startSpan starts a span of the library. It is called only with a Tracer.
func (d *dispatcher) startSpan(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return d.cfg.Tracer.Tracer("github.com/chubbylock/chubby/client").Start(ctx, name, options...)
}

// dispatchTraced is dispatchUntraced with a span for the call. The library's own repeated work has none.
func (d *dispatcher) dispatchTraced(ctx context.Context, k call) (outcome, error) {
	if k.class == classRenewal || k.class == classAudit {
		return d.dispatchUntraced(untraced(ctx, d.cfg), k)
	}
	attributes := []attribute.KeyValue{attribute.String("chubby.cell", d.cfg.Cell), attribute.String("chubby.path", k.path)}
	if k.session != nil {
		attributes = append(attributes, attribute.String("chubby.session", k.session.id.String()))
	}
	ctx, span := d.startSpan(ctx, "chubby "+k.op, trace.WithAttributes(attributes...))
	defer span.End()
	result, err := d.dispatchUntraced(ctx, k)
	endWith(span, err)
	if id := span.SpanContext(); err != nil && id.IsSampled() {
		var e *api.Error
		if errors.As(err, &e) && e.Trace == "" {
			told := *e
			told.Trace = id.TraceID().String()
			err = &told
		}
	}
	return result, err
}

// attemptTraced is an attempt with a span, the parent of the master's, if the call has one.
func (d *dispatcher) attemptTraced(ctx context.Context, t *target, attempt func(context.Context) error) error {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return attempt(ctx)
	}
	ctx, span := d.startSpan(ctx, "attempt", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("server.address", t.address)))
	defer span.End()
	if span.SpanContext().IsSampled() {
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		ctx = context.WithValue(ctx, traceparentKey{}, carrier[traceparent])
	}
	err := attempt(ctx)
	endWith(span, t.explainError(err))
	return err
}

func endWith(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetAttributes(attribute.String("chubby.code", api.CodeOf(err).String()))
		span.SetStatus(codes.Error, err.Error())
	}
}
