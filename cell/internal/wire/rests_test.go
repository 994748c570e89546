package wire

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/session"
	"golang.org/x/net/http2"
)

// wastedCalls is how many short calls of one address a second may be for nothing.
const wastedCalls = maxWaste / callWeight

// flood is a wire over which calls come that are reset at once.
func flood(t *testing.T, calls int) []byte {
	t.Helper()
	var wire bytes.Buffer
	wire.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&wire, nil)
	for i := range calls {
		stream := uint32(2*i + 1)
		testbed.NoErr(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte{0x83}, EndHeaders: true}))
		testbed.NoErr(t, f.WriteRSTStream(stream, http2.ErrCodeCancel))
	}
	return wire.Bytes()
}

// piped opens a connection, and returns its other end.
func piped(t *testing.T, c *Connections) (conn *heardConn, far net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	if conn = hear(near, Listener{Clock: testbed.Clock()}); !c.admit(conn) {
		t.Fatal("closed")
	}
	return conn, far
}

// A connection over which very many calls are begun and reset is read slowly: its address has so many a second. It
// can be closed at any time.
func TestResetsAreReadSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := rated(Rates{})
		const seconds = 8
		var conns []*heardConn
		began := time.Now()
		for range 2 {
			conn, far := piped(t, c)
			go func() { _, _ = far.Write(flood(t, seconds*wastedCalls/2)) }()
			conns = append(conns, conn)
		}
		done := make(chan error, len(conns))
		for _, conn := range conns {
			go func() {
				_, err := io.CopyN(io.Discard, conn, int64(len(flood(t, seconds*wastedCalls/2))))
				done <- err
			}()
		}
		for range conns {
			testbed.Report(t, <-done)
		}
		if took := time.Since(began); took < (seconds-4)*time.Second || took > (seconds+1)*time.Second {
			t.Errorf("%d calls for nothing were read within %v", seconds*wastedCalls, took)
		}
		conns[0].account.received(flood(t, 3*wastedCalls)[len(http2.ClientPreface):])
		conns[0].rest.Store(int64(maxRest))
		waiting := make(chan time.Duration)
		go func() {
			began := time.Now()
			_, _ = conns[0].Read(make([]byte, 1))
			waiting <- time.Since(began)
		}()
		synctest.Wait()
		_, _ = conns[0].Close(), conns[1].Close()
		if took := <-waiting; took != 0 {
			t.Errorf("a connection that was closed was read %v later", took)
		}
	})
}

// A connection that rests all the time is closed, and its client may connect anew.
func TestRestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := rated(Rates{})
		shed := 0
		c.told.Shed = func() { shed++ }
		conn, far := piped(t, c)
		go func() { _, _ = far.Write(flood(t, 100*wastedCalls)) }()
		began := time.Now()
		n, err := io.Copy(io.Discard, conn)
		if took := time.Since(began); err == nil || shed != 1 || c.Count() != 0 || took > maxRested+maxRest || n < int64(maxRested/maxRest)*readBuffer {
			t.Errorf("after %v and %d bytes: %v; %d are closed, %d open", took, n, err, shed, c.Count())
		}
	})
}

// A connection whose client makes one call after the other rests for milliseconds at a time, as often as it takes, and is not
// closed: others may share it.
func TestShortRestsCloseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := rated(Rates{})
		conn, far := piped(t, c)
		const seconds = 5
		wire := flood(t, seconds*wastedCalls)
		one := (len(wire) - len(http2.ClientPreface)) / (seconds * wastedCalls)
		go func() {
			_, _ = far.Write(wire[:len(http2.ClientPreface)])
			for rest := wire[len(http2.ClientPreface):]; len(rest) > 0; rest = rest[one:] {
				_, _ = far.Write(rest[:one])
			}
			_ = far.Close()
		}()
		began := time.Now()
		n, err := io.Copy(io.Discard, conn)
		if took := time.Since(began); n != int64(len(wire)) || err != nil || took < (seconds-2)*time.Second || took > seconds*time.Second {
			t.Errorf("after %v %d of %d bytes were read: %v", took, n, len(wire), err)
		}
		_ = conn.Close()
	})
}

// Calls that end before they are served have their connection rest, too.
func TestUnservedCallsAreReadSlowly(t *testing.T) {
	l := testbed.Loopback(t)
	c := (&host{}).serve(t, l, wide())
	r := newRude(t, dialled(t, l))
	begin := func(method string, request []byte, n int) {
		for range n {
			stream := r.begin(method)
			testbed.NoErr(t, r.send(stream, request, len(request) > len(announced(0))))
			if code := r.status(stream); code == "0" {
				t.Fatal("it was served")
			}
		}
	}
	testbed.Await(t, "the connection", func() bool { return c.Count() == 1 })
	var o *party
	c.mu.Lock()
	for _, one := range c.from.here {
		o = one
	}
	c.mu.Unlock()
	long := announced(maxKeepAlive + 1)
	long = append(long, make([]byte, maxKeepAlive+1)...)
	for method, request := range map[string][]byte{
		pb.Chubby_SetContents_FullMethodName: announced(1 << 30), "/nobody/knows": announced(1 << 30),
		pb.Chubby_KeepAlive_FullMethodName: long, pb.Chubby_KeepAlives_FullMethodName: long,
	} {
		before := o.waste.full.Load()
		begin(method, request, 20+1) // a call is counted once its end is written, so the last may not be yet
		if more := time.Duration(o.waste.full.Load() - before); more < 20*time.Second/wastedCalls {
			t.Errorf("20 calls of %s cost %v", method, more)
		}
	}
}

// Calls that are refused because of their rate cost their connection time, too.
func TestRefusedCallsAreReadSlowly(t *testing.T) {
	c, _ := rated(Rates{CallsPerAddress: 10})
	conn := arriving(t, c, "10.0.0.1:1", "", session.Instant(time.Hour))
	if n, _ := served(conn, 10+wastedCalls); n != 10 || conn.rest.Load() != 0 {
		t.Errorf("%d calls are served, and then it is read %v later", n, time.Duration(conn.rest.Load()))
	}
	if served(conn, 100); time.Duration(conn.rest.Load()) != 100*time.Second/wastedCalls {
		t.Errorf("it is read %v later", time.Duration(conn.rest.Load()))
	}
	if served(conn, 10*wastedCalls); time.Duration(conn.rest.Load()) != maxRest {
		t.Errorf("after very many it is read %v later", time.Duration(conn.rest.Load()))
	}
}

// Calls for nothing cost their connection as much time as they have bytes: a few long ones as much as very many short ones.
func TestLongCallsForNothingAreReadSlowly(t *testing.T) {
	c, _ := rated(Rates{})
	conn := arriving(t, c, "10.0.0.1:1", "", session.Instant(time.Hour))
	const calls, frame, frames = 20, 16 << 10, 20
	var wire bytes.Buffer
	wire.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&wire, nil)
	for i := range calls {
		stream := uint32(2*i + 1)
		testbed.NoErr(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte{0x83}, EndHeaders: true}))
		for range frames {
			testbed.NoErr(t, f.WriteData(stream, false, make([]byte, frame)))
		}
		testbed.NoErr(t, f.WriteRSTStream(stream, http2.ErrCodeCancel))
	}
	conn.account.received(wire.Bytes())
	if rest := time.Duration(conn.rest.Load()); rest < maxRest*9/10 {
		t.Errorf("after %d calls of %d bytes for nothing it is read %v later", calls, frames*frame, rest)
	}
}

// Handshakes are computed in turn; one that waits for its client keeps none from going on.
func TestHandshakesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := make(chan struct{}, 1)
		near, far := net.Pipe()
		first, second := &opening{Conn: near, slots: slots}, &opening{slots: slots}
		first.take()
		var read, had atomic.Bool
		go func() {
			second.take()
			had.Store(true)
		}()
		if synctest.Wait(); had.Load() {
			t.Error("two handshakes are computed at a time")
		}
		go func() {
			_, _ = first.Read(make([]byte, 1))
			read.Store(true)
		}()
		if synctest.Wait(); !had.Load() || read.Load() {
			t.Error("one that waits for its client keeps another from going on")
		}
		_, _ = far.Write([]byte{1})
		if synctest.Wait(); read.Load() {
			t.Error("the first goes on beside the second")
		}
		second.end()
		if synctest.Wait(); !read.Load() {
			t.Error("the first does not go on")
		}
		first.end()
		go func() { _, _ = far.Write([]byte{1}) }()
		if _, err := first.Read(make([]byte, 1)); err != nil || len(slots) != 0 {
			t.Errorf("after the handshakes %d are computed; %v", len(slots), err)
		}
	})
}
