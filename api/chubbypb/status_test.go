package chubbypb_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Every code, with everything an error can carry, arrives as it was sent, also
// when it was wrapped on the way.
func TestErrorsCrossTheWire(t *testing.T) {
	for _, code := range api.Codes() {
		sent := &api.Error{
			Code: code, Op: "acquire", Path: "/ls/foo/lock", Replica: "r2", Master: "h1:7421", Cell: "foo", Message: "held; wait",
			Holders:   []api.Holder{{Session: 7, Principal: "alice", Host: "h", PID: 12, Reason: "backup", SinceUnix: 99}},
			Remaining: 3 * time.Second, Current: 41,
		}
		got := chubbypb.Error(chubbypb.Status(fmt.Errorf("while serving: %w", sent)))
		if !reflect.DeepEqual(got, error(sent)) {
			t.Errorf("%v arrived as %#v", code, got)
		}
		if !errors.Is(got, code) {
			t.Errorf("errors.Is does not find %v", code)
		}
		if s := status.Code(chubbypb.Status(sent)); s == codes.Unknown || s == codes.OK {
			t.Errorf("%v travels as gRPC's %v", code, s)
		}
	}
}

// Errors that are not Chubby's keep what can be concluded from them.
func TestForeignErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want api.Code
	}{
		{nil, api.OK},
		{context.Canceled, api.Cancelled},
		{context.DeadlineExceeded, api.DeadlineExceeded},
		{status.Error(codes.Unavailable, "connection refused"), api.Unavailable},
		{status.Error(codes.Internal, "?"), api.Uncertain},
		{errors.New("?"), api.Uncertain},
	} {
		if got := api.CodeOf(chubbypb.Error(c.err)); got != c.want {
			t.Errorf("Error(%v) is %v, want %v", c.err, got, c.want)
		}
		if c.err != nil && status.Code(c.err) == codes.Unknown {
			if got := api.CodeOf(chubbypb.Error(chubbypb.Status(c.err))); got != c.want {
				t.Errorf("Status(%v) arrives as %v, want %v", c.err, got, c.want)
			}
		}
	}
}
