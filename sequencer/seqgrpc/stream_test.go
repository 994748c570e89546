package seqgrpc

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chubbylock/chubby/api"
)

// counted is a stream that counts the operations that reach it.
type counted struct {
	grpc.ServerStream
	operations atomic.Int32
}

func (c *counted) SendMsg(any) error { c.operations.Add(1); return nil }
func (c *counted) RecvMsg(any) error { c.operations.Add(1); return nil }

// After its section should have ended, a stream does nothing more: not even
// behind the back of a handler that was told it does not.
func TestNothingPassesAfterTheCut(t *testing.T) {
	for _, cause := range []struct {
		err  error
		want codes.Code
	}{{api.Errorf(api.BadSequencer, "57 was seen"), codes.FailedPrecondition}, {context.Canceled, codes.Canceled}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cut := context.WithCancelCause(t.Context())
			stream := &counted{}
			guarded := &guardedStream{ServerStream: stream, ctx: ctx}
			if err := guarded.SendMsg(nil); err != nil {
				t.Fatal(err)
			}
			cut(cause.err)
			for _, operation := range []func(any) error{guarded.SendMsg, guarded.RecvMsg} {
				if err := operation(nil); status.Code(err) != cause.want {
					t.Errorf("after %v: %v; want %v", cause.err, err, cause.want)
				}
			}
			synctest.Wait()
			if got := stream.operations.Load(); got != 1 {
				t.Errorf("%d operations; one was before the cut", got)
			}
		})
	}
}
