package client

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What speaks neither in frames nor gRPC is called so, in whole words.
func TestReplicaThatSpeaksNeither(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := channelBy(t, f, time.Second, func(context.Context, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				_, _ = io.ReadFull(theirs, make([]byte, 24))
				_ = theirs.Close()
			}()
			return ours, nil
		})
		defer c.Close()
		err := c.Invoke(t.Context(), "/x/y", nil, nil)
		if status.Code(err) != codes.Unavailable || !strings.HasSuffix(err.Error(), "or that of Raft (7431) or HTTP (7441)? it closed the connection") {
			t.Error(err)
		}
	})
}
