package client

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/frames"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// speaksFrames reports whether a client speaks in frames with an address over the connection of
// its calls.
func speaksFrames(c *Client, address string) bool {
	t, err := c.cell.pool.get(address)
	if err != nil {
		return false
	}
	t.data.mu.Lock()
	defer t.data.mu.Unlock()
	_, ok := t.data.link.(*frames.Link)
	return ok
}

// upgrade has every address answered anew, by replicas that know frames or not. The connections
// that there are break.
func (f *fake) upgrade(old bool) {
	f.cut(addresses()...)
	f.old = old
	for _, address := range addresses() {
		f.serve(address, 2000)
	}
	f.heal()
}

// A replica that knows no frames is spoken to over gRPC, until it has been upgraded; and again, if
// it is downgraded. Sessions and locks go on, and what was written was written once.
func TestReplicasWithoutFrames(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.upgrade(true)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		cfg, r := f.recorded()
		c, err := New(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		h := lockable(t, c, 0)
		l, err := h.Acquire(ctx, api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		for writes, old := range []bool{true, false, true, false} {
			if writes > 0 {
				f.upgrade(old)
			}
			if _, err := h.SetContents(ctx, []byte("x")); err != nil {
				t.Error(err)
			}
			if n := f.state().writes; n != writes+1 {
				t.Errorf("%d writes were made by %d calls", n, writes+1)
			}
			if framed := speaksFrames(c, "a:1"); framed == old {
				t.Errorf("old replicas: %v; spoken to in frames: %v", old, framed)
			}
			time.Sleep(time.Minute)
		}
		if len(r.states()) > 0 || l.Err() != nil {
			t.Errorf("states %v, and the lock: %v", r.states(), l.Err())
		}
		closeClient(t, c)
	})
}

// channelBy returns a channel to a replica at a:1, which is connected to by dial.
func channelBy(t *testing.T, f *fake, timeout time.Duration, dial func(ctx context.Context, address string) (net.Conn, error)) *channel {
	t.Helper()
	cfg := f.config()
	cfg.DialTimeout, cfg.Dialer = timeout, dial
	one, err := newPool(t.Context(), cfg.withDefaults()).get("a:1")
	if err != nil {
		t.Fatal(err)
	}
	return one.data.channel
}

// While a replica cannot be reached, calls fail at once with the reason, and it is tried again
// while there are calls, and not for ever.
func TestChannelThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		var dials atomic.Int64
		c := channelBy(t, f, time.Second, func(context.Context, string) (net.Conn, error) {
			dials.Add(1)
			return nil, errors.New("nobody is there")
		})
		defer c.Close()
		for range 100 {
			began := time.Now()
			if err := c.Invoke(t.Context(), "/x/y", nil, nil); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "nobody is there") {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("a call failed after %v", took)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := dials.Load(); n < 15 || n > 40 {
			t.Errorf("%d attempts within 10 s", n)
		}
		time.Sleep(2 * idleTimeout)
		n := dials.Load()
		time.Sleep(time.Hour)
		if more := dials.Load() - n; more > 0 || c.GetState() != connectivity.Idle {
			t.Errorf("%d attempts without a call; the channel is %v", more, c.GetState())
		}
	})
}

// A call that waits for a connection ends with its context, and with the channel.
func TestChannelThatWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := channelBy(t, f, time.Minute, func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Invoke(ctx, "/x/y", nil, nil); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a call that has a second: %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- c.Invoke(t.Context(), "/x/y", nil, nil) }()
		synctest.Wait()
		c.Close()
		if err := <-done; status.Code(err) != codes.Canceled {
			t.Errorf("a call over a channel that is closed: %v", err)
		}
	})
}

// A call that a replica did not take, because it was about to stop, is made over the next
// connection.
func TestChannelSendsAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.upgrade(false)
		var dials atomic.Int64
		c := channelBy(t, f, time.Second, func(ctx context.Context, address string) (net.Conn, error) {
			if dials.Add(1) > 1 {
				return f.dial(ctx, address)
			}
			ours, theirs := net.Pipe()
			go func() { // says hello, and leaves when it has read one request
				hello := make([]byte, frames.HelloSize)
				_, _ = io.ReadFull(theirs, hello)
				binary.BigEndian.PutUint32(hello[16:], 10)
				_, _ = theirs.Write(hello)
				var head [frames.HeaderSize]byte
				_, _ = io.ReadFull(theirs, head[:])
				_, _ = io.CopyN(io.Discard, theirs, int64(frames.ParseHeader(&head).Length))
				go func() { _, _ = io.Copy(io.Discard, theirs) }()
				_, _ = theirs.Write(frames.Header{Kind: frames.KindLeave}.Append(nil))
				_ = theirs.Close()
			}()
			return ours, nil
		})
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := chubbypb.NewCellClient(c).Locate(ctx, &chubbypb.LocateRequest{}); err != nil || dials.Load() != 2 {
			t.Errorf("over %d connections: %v", dials.Load(), err)
		}
	})
}

// A channel that is closed does not wait for the calls of a replica that takes no more of them,
// and answers none: they fail.
func TestChannelIsClosedWhileAReplicaLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		ours, theirs := net.Pipe()
		go func() { // says hello, takes a call, leaves, and answers nothing but pings
			hello := make([]byte, frames.HelloSize)
			_, _ = io.ReadFull(theirs, hello)
			binary.BigEndian.PutUint32(hello[16:], 10)
			binary.BigEndian.PutUint32(hello[20:], 1<<20)
			_, _ = theirs.Write(hello)
			var head [frames.HeaderSize]byte
			for {
				if _, err := io.ReadFull(theirs, head[:]); err != nil {
					return
				}
				h := frames.ParseHeader(&head)
				_, _ = io.CopyN(io.Discard, theirs, int64(h.Length))
				if h.Kind == frames.KindRequest {
					_, _ = theirs.Write(frames.Header{Kind: frames.KindLeave, Call: h.Call}.Append(nil))
				} else {
					_, _ = theirs.Write(frames.Header{Kind: frames.KindPong, Call: h.Call}.Append(nil))
				}
			}
		}()
		c := channelBy(t, f, time.Second, func(context.Context, string) (net.Conn, error) { return ours, nil })
		done := make(chan error, 1)
		go func() {
			_, err := chubbypb.NewCellClient(c).Locate(t.Context(), &chubbypb.LocateRequest{})
			done <- err
		}()
		synctest.Wait()
		defer time.AfterFunc(time.Hour, func() { _ = theirs.Close() }).Stop()
		began := time.Now()
		c.Close()
		if took := time.Since(began); took > 0 {
			t.Errorf("the channel was closed after %v", took)
		}
		if err := <-done; status.Code(err) != codes.Unavailable {
			t.Errorf("the call ended with %v", err)
		}
	})
}
