package client

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Of large requests only some are under way at a time. Small ones, KeepAlives among
// them, do not wait for them, and who waits can give up.
func TestLargeRequestsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := &target{large: make(chan struct{}, maxLarge)}
		arrived, leave := make(chan struct{}, 3*maxLarge), make(chan struct{})
		call := func(ctx context.Context, size int) error {
			request := &chubbypb.SetContentsRequest{Contents: make([]byte, size)}
			return one.pace(ctx, "", request, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				arrived <- struct{}{}
				if size > largeRequest {
					<-leave
				}
				return nil
			})
		}
		var work sync.WaitGroup
		for range 2 * maxLarge {
			work.Go(func() {
				if err := call(t.Context(), api.MaxContents); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if len(arrived) != maxLarge {
			t.Errorf("%d large requests are under way", len(arrived))
		}
		if err := call(t.Context(), 100); err != nil || len(arrived) != maxLarge+1 {
			t.Errorf("a small request meanwhile: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		work.Go(func() {
			if err := call(ctx, api.MaxContents); status.Code(err) != codes.Canceled {
				t.Errorf("one that gave up: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(leave)
		work.Wait()
		if len(arrived) != 2*maxLarge+1 || len(one.large) != 0 {
			t.Errorf("%d requests were sent, and %d are under way", len(arrived), len(one.large))
		}
	})
}
