package client

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/internal/certs"
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
		ctx := bounded(t, 10*time.Minute)
		cfg, r := f.recorded()
		c := f.closing(ok(New(ctx, cfg))(t))
		h := lockable(t, c, 0)
		l := ok(h.Acquire(ctx, api.Exclusive))(t)
		for writes, old := range []bool{true, false, true, false} {
			if writes > 0 {
				f.upgrade(old)
			}
			noError(t, second(h.SetContents(ctx, []byte("x"))))
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
	})
}

// channelBy returns a channel to a replica at a:1, which is connected to by dial.
func channelBy(t *testing.T, f *fake, timeout time.Duration, dial func(ctx context.Context, address string) (net.Conn, error)) *channel {
	t.Helper()
	cfg := f.config()
	cfg.DialTimeout, cfg.Dialer = timeout, dial
	one := ok(newPool(t.Context(), cfg.withDefaults()).get("a:1"))(t)
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
		if err := c.Invoke(bounded(t, time.Second), "/x/y", nil, nil); status.Code(err) != codes.DeadlineExceeded {
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
		if _, err := chubbypb.NewCellClient(c).Locate(bounded(t, time.Minute), &chubbypb.LocateRequest{}); err != nil || dials.Load() != 2 {
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

// A master that says it is at ":7421" is not dialled: nothing would say whose certificate its server has to have.
func TestEncryptionNeedsAHost(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	_, err := newTestEncryption(t).secure(bounded(t, time.Second), a, ":7421")
	if !errors.Is(err, api.Unauthenticated) {
		t.Error(err)
	}
	if _, err := a.Write([]byte("x")); err == nil {
		t.Error("the connection stays open")
	}
}

func newTestEncryption(t *testing.T) *encryption {
	t.Helper()
	files := TLSFiles{CA: t.TempDir() + "/ca.crt"}
	authority, err := certs.NewAuthority("test", time.Hour)
	if err == nil {
		err = authority.Write(files.CA, t.TempDir()+"/ca.key")
	}
	if err != nil {
		t.Fatal(err)
	}
	store := ok(certs.Open(files))(t)
	return &encryption{certificates: store, logger: slog.New(slog.DiscardHandler)}
}

// far has an address answer the question for the master late.
func (f *fake) far(address string, d time.Duration) {
	f.when(func(s seen) bool { return s.method == "Locate" && s.address == address }, after(d))
}

// A master that takes longer to answer than a round waits for the last ones, because it is
// further away than the others, is found.
func TestFarMaster(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.far("a:1", 400*time.Millisecond)
		f.closing(ok(New(bounded(t, 10*time.Second), f.config()))(t))
		if took := time.Since(f.began); took > time.Second {
			t.Errorf("New took %v", took)
		}
	})
}

// A new master that is busy, and so takes longer to connect to and to answer than the others,
// is found in time, and not connected to twice: it may be busy with many who look for it.
func TestBusyMaster(t *testing.T) {
	for what, slow := range map[string]struct {
		connect, answer time.Duration
		connections     int64
	}{
		"to answer":  {0, 700 * time.Millisecond, 0},
		"to connect": {900 * time.Millisecond, 400 * time.Millisecond, 1},
	} {
		runInBubble(t, what, func(t *testing.T, f *fake) {
			cfg, r := f.recorded()
			var made atomic.Int64
			cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
				if address == "b:1" {
					made.Add(1)
					time.Sleep(slow.connect)
				}
				return f.dial(ctx, address)
			}
			c := f.client(cfg)
			time.Sleep(2 * time.Minute) // connections without calls are gone
			if slow.connections == 0 {
				c.cell.locator.askReplica(t.Context(), "b:1")
				time.Sleep(5 * time.Second)
			}
			made.Store(0)
			f.far("b:1", slow.answer)
			f.elect("b:1")
			f.cut("a:1")
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(r.states()) > 0 || c.Epoch() != 6 {
				t.Errorf("states %v, epoch %v; %s", r.states(), c.Epoch(), c.cell.locator.diagnosis())
			}
			if n := made.Load(); n != slow.connections && !*withoutFrames { // else there is one more, for the question
				t.Errorf("%d connections", n)
			}
		})
	}
}

// A server that is configured twice is asked once, and not waited for twice.
func TestServerConfiguredTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.far("b:1", 100*time.Millisecond)
		f.locked(func() { f.master = "" })
		time.AfterFunc(time.Second, func() { f.elect("b:1") })
		cfg := f.config()
		cfg.Servers = []string{"b:1", "b:1", "b:1"}
		f.client(cfg)
		if took := time.Since(f.began); took > 1900*time.Millisecond {
			t.Errorf("New took %v", took)
		}
	})
}
