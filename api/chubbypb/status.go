package chubbypb

import (
	"context"
	"errors"
	"time"

	"github.com/chubbylock/chubby/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// grpcCode returns the gRPC code of a status with a code of ours, for tools that
// know gRPC only. Chubby itself reads its own code in the detail.
func grpcCode(c api.Code) codes.Code {
	switch c {
	case api.OK:
		return codes.OK
	case api.NotMaster, api.WrongCell, api.StaleEpoch, api.SessionExpired, api.NotEmpty, api.NotDirectory,
		api.IsDirectory, api.HandleClosed, api.LockHeld, api.LockDelayed, api.NotHeld, api.BadSequencer:
		return codes.FailedPrecondition
	case api.Unavailable:
		return codes.Unavailable
	case api.NotFound:
		return codes.NotFound
	case api.Exists:
		return codes.AlreadyExists
	case api.InvalidPath, api.InvalidArgument, api.TooLarge, api.BadHandle:
		return codes.InvalidArgument
	case api.PermissionDenied:
		return codes.PermissionDenied
	case api.Unauthenticated:
		return codes.Unauthenticated
	case api.Uncertain, api.LockLost, api.GenerationMismatch, api.Deadlock:
		return codes.Aborted
	case api.QuotaExceeded:
		return codes.ResourceExhausted
	case api.Cancelled:
		return codes.Canceled
	case api.DeadlineExceeded:
		return codes.DeadlineExceeded
	case api.Corrupt:
		return codes.DataLoss
	}
	return codes.Unknown
}

// Status turns an error into the gRPC status that carries it: code, message
// and one ErrorDetail. An *api.Error may be wrapped; a context's error becomes
// Cancelled or DeadlineExceeded; any other error becomes Uncertain, because
// nothing can be concluded from it.
func Status(err error) error {
	if err == nil {
		return nil
	}
	var e *api.Error
	if !errors.As(err, &e) {
		e = &api.Error{Code: api.CodeOf(err), Message: err.Error()}
		switch {
		case errors.Is(err, context.Canceled):
			e.Code = api.Cancelled
		case errors.Is(err, context.DeadlineExceeded):
			e.Code = api.DeadlineExceeded
		}
	}
	plain := status.New(grpcCode(e.Code), e.Error())
	detailed, err := plain.WithDetails(&ErrorDetail{
		Code:        uint32(e.Code),
		Op:          e.Op,
		Path:        e.Path,
		Replica:     e.Replica,
		Master:      e.Master,
		Cell:        e.Cell,
		Message:     e.Message,
		Holders:     Parties(e.Holders),
		RemainingNs: int64(e.Remaining),
		Current:     uint64(e.Current),
		Cacheable:   e.Cacheable,
		Final:       e.Final,
		Cycle:       Messages[Wait](e.Cycle),
	})
	if err != nil {
		return plain.Err()
	}
	return detailed.Err()
}

// Error turns the error of a call into an *api.Error: the one that the other side
// gave to Status; or, for a status without a detail, which gRPC itself has made, one
// with the nearest code. Nil stays nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	var e *api.Error
	if errors.As(err, &e) {
		return err
	}
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	for _, d := range s.Details() {
		if detail, ok := d.(*ErrorDetail); ok {
			return detail.error()
		}
	}
	return &api.Error{Code: bareCode(s.Code()), Message: s.Message(), Err: err}
}

func (d *ErrorDetail) error() *api.Error {
	return &api.Error{
		Code:      api.Code(d.Code),
		Op:        d.Op,
		Path:      d.Path,
		Replica:   d.Replica,
		Master:    d.Master,
		Cell:      d.Cell,
		Message:   d.Message,
		Holders:   Holders(d.Holders),
		Remaining: time.Duration(d.RemainingNs),
		Current:   api.Generation(d.Current),
		Cacheable: d.Cacheable,
		Final:     d.Final,
		Cycle:     Records[api.Wait](d.Cycle),
	}
}

// bareCode maps the codes of gRPC itself. A call that is Unavailable for gRPC may
// have reached the server before the connection broke, so the client treats it as
// Uncertain for a mutation, and retries under the same number.
func bareCode(c codes.Code) api.Code {
	switch c {
	case codes.Unavailable:
		return api.Unavailable
	case codes.Canceled:
		return api.Cancelled
	case codes.DeadlineExceeded:
		return api.DeadlineExceeded
	case codes.ResourceExhausted:
		return api.QuotaExceeded
	case codes.InvalidArgument, codes.Unimplemented, codes.OutOfRange:
		return api.InvalidArgument
	case codes.Unauthenticated:
		return api.Unauthenticated
	case codes.PermissionDenied:
		return api.PermissionDenied
	}
	return api.Uncertain
}

// Parties converts holders for the wire.
func Parties(holders []api.Holder) []*Party {
	var list []*Party
	for _, h := range holders {
		list = append(list, NewParty(h))
	}
	return list
}

// NewParty converts one holder for the wire.
func NewParty(h api.Holder) *Party {
	return &Party{
		Session:   uint64(h.Session),
		Principal: h.Principal,
		Host:      h.Host,
		Pid:       int64(h.PID),
		Reason:    h.Reason,
		SinceUnix: h.SinceUnix,
		Cached:    h.Cached,

		Checked:     h.Checked,
		LockDelayNs: int64(h.LockDelay),
		Owner:       h.Owner,
	}
}

// Holders converts holders from the wire.
func Holders(parties []*Party) []api.Holder {
	var list []api.Holder
	for _, p := range parties {
		list = append(list, p.Holder())
	}
	return list
}

// Holder converts one holder from the wire.
func (p *Party) Holder() api.Holder {
	return api.Holder{
		Session:   api.SessionID(p.GetSession()),
		Principal: p.GetPrincipal(),
		Host:      p.GetHost(),
		PID:       int(p.GetPid()),
		Reason:    p.GetReason(),
		SinceUnix: p.GetSinceUnix(),
		Cached:    p.GetCached(),

		Checked:   p.GetChecked(),
		LockDelay: time.Duration(p.GetLockDelayNs()),
		Owner:     p.GetOwner(),
	}
}

// NewStat converts a node's metadata for the wire.
func NewStat(s api.Stat) *Stat {
	var acl *ACL
	if s.ACL != (api.ACL{}) {
		acl = &ACL{Read: s.ACL.Read, Write: s.ACL.Write, Change: s.ACL.Change}
	}
	return &Stat{
		Path:              s.Path.String(),
		Kind:              Kind(s.Kind),
		Ephemeral:         s.Ephemeral,
		Instance:          uint64(s.Instance),
		ContentGeneration: uint64(s.Content),
		LockGeneration:    uint64(s.Lock),
		AclGeneration:     uint64(s.ACLs),
		Checksum:          s.Checksum,
		Size:              uint32(s.Size),
		Children:          uint32(s.Children),
		Acl:               acl,
		ModifiedUnix:      s.ModifiedUnix,
		Withheld:          s.Withheld,
	}
}

// Stat converts a node's metadata from the wire. It fails with InvalidPath if
// the other side sent an invalid path.
func (s *Stat) Stat() (api.Stat, error) {
	path, err := api.ParsePath(s.GetPath())
	if err != nil {
		return api.Stat{}, err
	}
	return api.Stat{
		Path:      path,
		Kind:      api.Kind(s.GetKind()),
		Withheld:  s.GetWithheld(),
		Ephemeral: s.GetEphemeral(),
		Instance:  api.Generation(s.GetInstance()),
		Content:   api.Generation(s.GetContentGeneration()),
		Lock:      api.Generation(s.GetLockGeneration()),
		ACLs:      api.Generation(s.GetAclGeneration()),
		Checksum:  s.GetChecksum(),
		Size:      int(s.GetSize()),
		Children:  int(s.GetChildren()),
		ACL:       api.ACL{Read: s.GetAcl().GetRead(), Write: s.GetAcl().GetWrite(), Change: s.GetAcl().GetChange()},

		ModifiedUnix: s.GetModifiedUnix(),
	}, nil
}
