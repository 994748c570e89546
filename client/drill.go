package client

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// DrillKind is what a drill does to a cell: what would happen in a failure, at a moment that somebody has chosen, and with
// somebody who looks on.
type DrillKind uint8

// The kinds of drills. DrillHardFailOver and DrillOutage are done by the master; of the others it only knows that they go on.
const (
	DrillFailOver     DrillKind = 1 // the master hands over to another replica
	DrillHardFailOver DrillKind = 2 // the master gives up and falls silent; the others have to find out, and elect
	DrillOutage       DrillKind = 3 // the cell has no master for a while
	DrillSessionLoss  DrillKind = 4 // a session is ended
	DrillSlowClient   DrillKind = 5 // a session falls silent that has a file in its cache
)

// String names the kind: "hard-failover".
func (k DrillKind) String() string { return chubbypb.DrillKind(k).Word() }

// Drill is what BeginDrill asks for.
type Drill struct {
	Kind   DrillKind
	For    time.Duration // when it ends by itself: at most api.MaxOutage of an outage, else api.MaxDrill
	Reason string        // for the logs of the cell; at most api.MaxReason bytes
}

// BeginDrill begins a drill, as an operator's act, and returns when the cell says that it has begun, with the replica that was
// the master then. The drill lasts until its time is over, or ctx ends, or this process does, and at most eight seconds longer than its
// master; wait returns then, and a nil error means that the cell has had it until the end. There is one drill at a time in a cell, and none
// within the first ten seconds of a master, for which BeginDrill waits until ctx ends.
//
// The kinds DrillOutage and DrillHardFailOver leave the cell without a master, also for this client. Of the other kinds the
// cell does nothing by itself: whoever looks at it sees that what happens is a drill, and the caller calls Transfer or
// EndSession, for example.
//
// The errors are QuotaExceeded while another drill goes on, InvalidArgument, PermissionDenied, and Uncertain: the drill may have
// begun, and has ended then.
func BeginDrill(ctx context.Context, c *Client, d Drill) (master string, wait func() error, err error) {
	const op = "begin a drill"
	path := rootPath(c.cell.cfg)
	if err := checkReason(d.Reason, op, path); err != nil {
		return "", nil, err
	}
	b := &drillCall{ctx: ctx, request: &chubbypb.DrillRequest{Kind: chubbypb.DrillKind(d.Kind), ForNs: int64(d.For), Reason: d.Reason}}
	if _, err = c.cell.dispatcher.dispatch(ctx, call{op: op, path: path, session: c.session, class: classUnlimited, attempt: b.attempt}); err == nil {
		err = b.failed
	}
	if err != nil {
		var e *api.Error
		if errors.As(err, &e) {
			err = withOperation(e, op, path)
		}
		return "", nil, err
	}
	return b.master, b.wait, nil
}

// drillCall is one call of BeginDrill.
type drillCall struct {
	ctx     context.Context //nolint:containedctx // of the drill, which outlasts the attempt that began it
	request *chubbypb.DrillRequest

	target *target
	stream interface {
		Recv() (*chubbypb.DrillReply, error)
	}
	end    context.CancelFunc // of the stream
	master string
	failed error // why there is no drill, if the attempt is not to be repeated
}

// attempt opens the stream of the drill, whose life is that of the drill. It is not repeated once the master may have begun.
func (b *drillCall) attempt(ctx context.Context, t *target, caller *chubbypb.Caller) error {
	within, end := context.WithCancel(b.ctx)
	stop := context.AfterFunc(ctx, end)
	b.request.Caller = caller
	stream, err := t.data.chubby.Drill(within, b.request)
	if err != nil {
		end()
		return err
	}
	reply, err := stream.Recv()
	if err == nil && stop() {
		b.target, b.stream, b.end, b.master = t, stream, end, reply.GetReplica()
		return nil
	}
	end()
	if err == nil {
		err = context.Cause(ctx)
	}
	e := &api.Error{Code: api.Uncertain, Err: err}
	errors.As(t.explainError(err), &e)
	if v := verdictOf(e); v == verdictRetry || v == verdictFollow || v == verdictStaleEpoch {
		return err // it did nothing
	}
	b.failed = e
	return nil
}

// wait returns when the drill has ended.
func (b *drillCall) wait() error {
	defer b.end()
	_, err := b.stream.Recv()
	if err == nil || errors.Is(err, io.EOF) || b.ctx.Err() != nil {
		return nil
	}
	return b.target.explainError(err)
}
