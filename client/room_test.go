package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
)

// However many calls a program makes at a time, and however long they take, its session is
// kept alive over the same connection.
func TestCallsLeaveRoomForKeepAlives(t *testing.T) {
	if room := 2000 - mostWaits - mostReads - mostChanges; room < 400 {
		t.Errorf("there is room for %d KeepAlives", room)
	}
	for method, ask := range map[string]func(context.Context, *Handle) error{
		"GetStat":     func(ctx context.Context, h *Handle) error { _, err := h.Stat(ctx); return err },
		"SetContents": func(ctx context.Context, h *Handle) error { _, err := h.SetContents(ctx, nil); return err },
	} {
		t.Run(method, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) { manyCalls(t, f, method, ask) })
		})
	}
}

func manyCalls(t *testing.T, f *fake, method string, ask func(context.Context, *Handle) error) {
	const streams = 20 // of a connection
	f.limitStreams("a:1", streams)
	cfg := f.config()
	cfg.NoCache = true
	c := f.client(cfg)
	c.finder.rooms = rooms{reads: make(chan struct{}, streams/2), changes: make(chan struct{}, streams/2), large: make(chan struct{}, 1)}
	h := lockable(t, c, 0)
	f.script(func(s seen) verb {
		if s.method == method {
			return after(3 * time.Second)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	for range 3 * streams {
		go func() {
			for ctx.Err() == nil {
				_ = ask(ctx, h)
			}
		}()
	}
	left := c.Lease()
	for range 1000 {
		time.Sleep(100 * time.Millisecond)
		left = min(left, c.Left())
	}
	if left <= 0 {
		t.Errorf("the session was in jeopardy: %v was left of its lease", left)
	}
	cancel()
	synctest.Wait()
	time.Sleep(time.Minute)
	closeClient(t, c)
}

// limitStreams has an address take so many calls over a connection.
func (f *fake) limitStreams(address string, most uint32) {
	pipe := bufconn.Listen(1 << 16)
	f.pipes[address] = pipe
	s := grpc.NewServer(grpc.MaxConcurrentStreams(most), grpc.UnaryInterceptor(f.unary(address)), grpc.StreamInterceptor(f.stream(address)))
	chubbypb.RegisterChubbyServer(s, f)
	chubbypb.RegisterCellServer(s, fakeCell{fake: f, address: address})
	f.servers = append(f.servers, s)
	go func() { _ = s.Serve(pipe) }()
}
