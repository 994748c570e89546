package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

func (t *target) noteDial(err error) {
	if errors.Is(err, context.Canceled) {
		return // abandoned, which says nothing of the replica
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused = err
}

// explainError returns the error of a call as chubbypb.Error does, and for an unreachable replica the
// system's words, without gRPC's three layers.
func (t *target) explainError(err error) error {
	if older := t.olderError(err); older != nil {
		return older
	}
	err = chubbypb.Error(err)
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.Unavailable || e.Err == nil {
		return err
	}
	t.mu.Lock()
	refused := t.refused
	t.mu.Unlock()
	if refused == nil {
		return err
	}
	if errors.As(refused, &e) && e.Code == api.Unauthenticated {
		return e
	}
	own := *e
	own.Message, own.Err = systemText(refused), refused
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
	call := s.Message() // "unknown method X for service Y"; over frames without the service
	if _, rest, found := strings.Cut(call, "method "); found {
		call, _, _ = strings.Cut(rest, " ")
		call = path.Base(strings.Trim(call, `"`))
	}
	return &api.Error{Code: api.InvalidArgument, Err: OlderMaster, Message: fmt.Sprintf(
		"%s does not know %s yet, and nothing was done: upgrade the replicas of the cell (chubbyctl cell upgrade status)", t.unnamed(), call)}
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

func withoutCause(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.Unavailable {
		return err
	}
	own := *e
	own.Err = nil
	return &own
}

// systemText returns the innermost text of a dialer's error: "connection refused".
func systemText(err error) string {
	var system *os.SyscallError
	var op *net.OpError
	switch {
	case errors.As(err, &system):
		return system.Err.Error()
	case errors.As(err, &op) && op.Err != nil:
		return op.Err.Error()
	}
	return err.Error()
}
