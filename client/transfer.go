package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Transfer makes another replica the master, as an operator's act: the one with that id, or, if to is empty,
// the one with the most complete log. It returns the id of the master at the end. Sessions and locks survive
// it like any fail-over.
//
// The stepping down may lose the answer. Then Transfer asks the replicas for the master: if another replica
// (the wanted one, if to names one) is master in a later epoch than when the master was asked, it succeeds,
// whatever the cause. It asks no master twice in one epoch: if that is still the master, or ctx ends before
// the result is known, the error is Uncertain, and the master may yet hand over. Other errors are the
// master's, such as PermissionDenied.
func (c *Client) Transfer(ctx context.Context, to string) (master string, err error) {
	return TransferWith(ctx, c, TransferOptions{To: to})
}

// TransferOptions qualify TransferWith.
type TransferOptions struct {
	To  string // the wanted master; "" for the replica with the most complete log
	Why string // for the logs of the cell; at most api.MaxReason bytes

	// Silent makes the master hand over to no replica: it stops serving and falls silent, as if cut off from
	// the network, until the other replicas have noticed and elected one of them. It ignores To.
	Silent bool
	// Vacant is how long, at most api.MaxOutage, the cell has no master before it falls silent. That ends
	// early with ctx, with this process, and with the former master's replica.
	Vacant time.Duration
}

// TransferWith is [Client.Transfer] with options. With Silent it asks the master once; the cell has no master
// for a while, and the id may be empty.
func TransferWith(ctx context.Context, c *Client, o TransferOptions) (master string, err error) {
	const op = "transfer the mastership"
	var askedEpoch api.Epoch // in which a master was last asked, or 0
	var askedReplica string  // that master
	var lastError *api.Error // that it answered
	var doubt *api.Error     // why there is no result
	askMaster := func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
		now, err := t.data.cell.Locate(ctx, &chubbypb.LocateRequest{Cell: c.cfg.Cell})
		if err != nil {
			return err
		}
		id, epoch := now.GetMaster(), api.Epoch(now.GetEpoch())
		switch {
		case id == "" || id != now.GetReplica():
			return &api.Error{Code: api.NotMaster, Replica: now.GetReplica(), Master: now.GetMasterAddress(), Message: "it is not the master"}
		case askedEpoch == 0:
		case epoch > askedEpoch && (o.Silent || id == o.To || o.To == "" && id != askedReplica):
			master = id
			return nil
		case epoch == askedEpoch:
			doubt = &api.Error{Code: api.Uncertain, Replica: id, Err: lastError.Err,
				Message: fmt.Sprintf("%s was asked to hand over and is still the master; it may yet do so: %s", id, brief(lastError))}
			return nil
		}
		before, whom := askedEpoch, askedReplica
		askedEpoch, askedReplica = api.Epoch(caller.GetEpoch()), id
		reply, err := t.data.chubby.Transfer(ctx, &chubbypb.TransferRequest{Caller: caller, To: o.To, Reason: o.Why, Silent: o.Silent, VacantNs: int64(o.Vacant)})
		if err == nil {
			master = reply.GetMaster()
			return nil
		}
		lastError = &api.Error{Code: api.Uncertain, Message: "an error of no known kind", Err: err}
		errors.As(t.explainError(err), &lastError)
		if v := verdictOf(lastError); v == verdictRetry || v == verdictStaleEpoch {
			askedEpoch, askedReplica = before, whom // it did nothing
		}
		return err
	}
	came, err := c.cell.dispatcher.dispatch(ctx, call{op: op, path: rootPath(c.cell.cfg), session: c.session, class: classUnlimited, noTimeout: o.Silent, attempt: askMaster})
	var e *api.Error
	switch {
	case err == nil && doubt == nil:
		return master, nil
	case err == nil:
		return "", withOperation(doubt, op, rootPath(c.cell.cfg))
	case came == outcomeUncertain && askedEpoch != 0 && errors.As(err, &e) && e.Code != api.SessionExpired:
		own := *e
		own.Code, own.Message = api.Uncertain, askedReplica+" was asked to hand over, and may yet do so; "+e.Message
		return "", &own
	}
	return "", err
}
