package seqgrpc

import (
	"errors"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/chubbylock/chubby/sequencer"
)

// The detail of a refusal is a google.rpc.ErrorInfo, which clients in every
// language can read. Its fields are stable.
const (
	detailDomain = "chubby"
	detailReason = "BadSequencer"
	tokenKey     = "token"  // of the call's sequencer
	newestKey    = "newest" // the greatest let in before for its lock; absent without one
)

// detailed returns the status with the tokens of the refusal, if it has any.
func detailed(s *status.Status, err error) error {
	var r *sequencer.Refusal
	if !errors.As(err, &r) {
		return s.Err()
	}
	info := &errdetails.ErrorInfo{Domain: detailDomain, Reason: detailReason, Metadata: map[string]string{tokenKey: strconv.FormatUint(r.Token, 10)}}
	if r.Newest != 0 {
		info.Metadata[newestKey] = strconv.FormatUint(r.Newest, 10)
	}
	with, err := s.WithDetails(info)
	if err != nil {
		return s.Err() // its message has the tokens
	}
	return with.Err()
}

// Tokens returns the tokens in the refusal of a call: that of its sequencer,
// and the greatest that the server had let in before for its lock, 0 if there
// was none. It reports false for any other error.
func Tokens(err error) (token, newest uint64, ok bool) {
	for _, detail := range status.Convert(err).Details() {
		info, is := detail.(*errdetails.ErrorInfo)
		if !is || info.GetDomain() != detailDomain || info.GetReason() != detailReason {
			continue
		}
		token, err := strconv.ParseUint(info.GetMetadata()[tokenKey], 10, 64)
		if err != nil {
			return 0, 0, false
		}
		newest, err := strconv.ParseUint(info.GetMetadata()[newestKey], 10, 64)
		return token, newest, err == nil || info.GetMetadata()[newestKey] == ""
	}
	return 0, 0, false
}
