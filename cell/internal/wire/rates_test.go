package wire

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/session"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// A bucket gives what a naive one gives that counts tokens.
func TestBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.SampledFrom([]int{1, 2, 10, 1000, 50_000}).Draw(t, "rate")
		token := int64(time.Second) / int64(rate)
		var b bucket
		now, tokens := session.Instant(rapid.Int64Range(0, 1<<50).Draw(t, "begin")), int64(rate)*token // in nanoseconds of its refilling
		for range rapid.IntRange(1, 300).Draw(t, "takes") {
			passed := rapid.Int64Range(0, 3*token).Draw(t, "passed")
			now, tokens = now+session.Instant(passed), min(tokens+passed, int64(time.Second))
			want := tokens >= token
			if want {
				tokens -= token
			}
			if got := b.take(now, rate, 0); got != want {
				t.Fatalf("with %d ns of tokens of %d ns: %v", tokens, token, got)
			}
		}
		if full := tokens == int64(time.Second); b.isFull(now) != full {
			t.Fatalf("it is full: %v, with %d ns of tokens", !full, tokens)
		}
	})
}

// rated returns connections with rates, and what they log.
func rated(rates Rates) (*Connections, *testbed.Lines) {
	log := &testbed.Lines{}
	c := NewConnections(Bounds{Connections: 100_000, PerAddress: 100_000, Memory: 1 << 40, Rates: rates}, untold(), slog.New(slog.NewTextHandler(log, nil)))
	return c, log
}

// arriving opens a connection, over which something has arrived.
func arriving(t *testing.T, c *Connections, from, principal string, now session.Instant) *heardConn {
	t.Helper()
	l := Listener{Clock: func() session.Instant { return now }}
	if principal != "" {
		l.Certificates = scripted{func() (string, func() bool, error) { return principal, func() bool { return true }, nil }}
	}
	conn := hear(&fromConn{from: from}, l)
	if !c.admit(conn) {
		t.Fatal("closed")
	}
	conn.last.Store(int64(now))
	if principal != "" {
		conn.identify(make([]*x509.Certificate, 1))
	}
	return conn
}

// served returns how many of some calls are served.
func served(conn *heardConn, calls int) (n int, last *api.Error) {
	for range calls {
		c := &call{of: conn.account, request: callWeight, open: true}
		switch err := c.admitRequest(requestSize{}); {
		case err == nil:
			n++
		case !errors.As(err, &last):
			panic(err) // calls are refused with errors of package api only
		}
	}
	return n, last
}

// The calls of a principal are counted together, wherever they come from and however often it connects.
func TestRateOfAPrincipal(t *testing.T) {
	c, log := rated(Rates{Calls: 100})
	late := 0
	c.told.Late = func() { late++ }
	now := session.Instant(time.Hour)
	one, other, bob := arriving(t, c, "10.0.0.1:1", "alice", now), arriving(t, c, "10.0.0.2:1", "alice", now), arriving(t, c, "10.0.0.1:2", "bob", now)
	if n, _ := served(one, 60); n != 60 {
		t.Errorf("%d of 60 calls are served", n)
	}
	n, why := served(other, 60)
	if n != 40 || why == nil || why.Code != api.Unavailable || !strings.Contains(why.Message, `"alice" makes more than 100 calls a second (max-calls-per-principal)`) {
		t.Errorf("%d of 60 more calls are served; the others: %v", n, why)
	}
	if n, _ := served(bob, 100); n != 100 {
		t.Errorf("%d of 100 calls of another principal are served", n)
	}
	if lines := len(log.Take()); late != 20 || lines != 1 {
		t.Errorf("%d refusals are counted, in %d lines", late, lines)
	}
	_, _ = one.Close(), other.Close()
	if len(c.callers.here) != 1 || len(c.callers.gone) != 1 {
		t.Errorf("%d principals are known, and %d remembered", len(c.callers.here), len(c.callers.gone))
	}
	again := arriving(t, c, "10.0.0.3:1", "alice", now)
	if n, _ := served(again, 10); n != 0 {
		t.Errorf("after connecting anew %d calls are served", n)
	}
	_ = again.Close()
	now += session.Instant(time.Second)
	again = arriving(t, c, "10.0.0.3:1", "alice", now)
	if n, _ := served(again, 200); n != 100 {
		t.Errorf("a second later %d calls are served", n)
	}
	_, _ = again.Close(), bob.Close()
	if now += session.Instant(2 * time.Second); len(c.callers.here) != 0 {
		t.Errorf("%d principals are known", len(c.callers.here))
	}
	_ = arriving(t, c, "10.0.0.3:1", "carol", now).Close()
	if len(c.callers.gone)+len(c.callers.order) != 0 {
		t.Errorf("%v is remembered", c.callers.order)
	}
}

// Sessions are opened at a rate of their own, which only they count against.
func TestRateOfSessions(t *testing.T) {
	c, _ := rated(Rates{Sessions: 2})
	conn := arriving(t, c, "10.0.0.1:1", "alice", session.Instant(time.Hour))
	if n, why := served(conn, 100); n != 100 {
		t.Errorf("%d of 100 calls are served: %v", n, why)
	}
	for n := range 4 {
		why := (&call{of: conn.account, rpc: rpc{opens: true}}).pace(requestSize{})
		if refused := why != nil && strings.Contains(why.Message, `"alice" opens more than 2 sessions a second (max-new-sessions-per-principal)`); refused != (n >= 2) {
			t.Errorf("session %d: %v", n+1, why)
		}
	}
	if n, _ := served(conn, 1); n != 1 {
		t.Error("another call is refused, too")
	}
}

// Over both transports the calls of an address are counted together; those are always served that nobody may
// have to wait for, and what gives something back does not wait for others.
func TestRateOfAnAddress(t *testing.T) {
	var now atomic.Int64
	now.Store(int64(time.Hour))
	c, _ := rated(Rates{CallsPerAddress: 3})
	l := bufconn.Listen(4 << 10)
	(&host{}).serveOn(t, l, c, func() session.Instant { return session.Instant(now.Load()) })
	framed := newFramed(t, l)
	inFrames := func(method string, q proto.Message) codes.Code {
		testbed.NoErr(t, testbed.ErrOf(framed.begin(method, q)))
		return framed.ending()
	}
	conn := testbed.Must(l.DialContext(t.Context()))(t)
	rude := newRude(t, conn)
	overHTTP := func(method string, q proto.Message) codes.Code {
		stream := rude.begin(method)
		message, _ := proto.Marshal(q)
		testbed.NoErr(t, rude.send(stream, append(announced(len(message)), message...), true))
		var code int
		testbed.NoErr(t, testbed.ErrOf(fmt.Sscan(rude.status(stream), &code)))
		return codes.Code(code)
	}
	read, q := pb.Chubby_GetContentsAndStat_FullMethodName, &pb.GetContentsAndStatRequest{}
	for _, step := range []struct {
		passed time.Duration
		call   func(string, proto.Message) codes.Code
		want   codes.Code
	}{
		{0, inFrames, codes.OK},
		{0, overHTTP, codes.OK},
		{0, inFrames, codes.OK},
		{0, inFrames, codes.Unavailable},
		{0, overHTTP, codes.Unavailable},
		{time.Second / 3, overHTTP, codes.OK},
		{0, inFrames, codes.Unavailable},
	} {
		now.Add(int64(step.passed))
		if code := step.call(read, q); code != step.want {
			t.Fatalf("%+v ended with %v", step, code)
		}
	}
	for method, q := range map[string]proto.Message{pb.Chubby_KeepAlive_FullMethodName: &pb.KeepAliveRequest{}, pb.Chubby_KeepAlives_FullMethodName: &pb.KeepAliveRequest{}} {
		for range 20 {
			if a, b := inFrames(method, q), overHTTP(method, q); a != codes.Unimplemented || b != codes.Unimplemented { // as this host has it
				t.Fatalf("%s ended with %v and %v", method, a, b)
			}
		}
	}
	back := []string{pb.Chubby_Release_FullMethodName, pb.Chubby_Cancel_FullMethodName, pb.Chubby_CloseHandle_FullMethodName, pb.Chubby_EndSession_FullMethodName}
	for n, method := range back { // from their reserve
		want := codes.Unimplemented
		if n == 3 {
			want = codes.Unavailable
		}
		if code := inFrames(method, &pb.CancelRequest{}); code != want {
			t.Errorf("%s ended with %v, want %v", method, code, want)
		}
	}
	if code := inFrames(read, q); code != codes.Unavailable {
		t.Errorf("after these, a call ended with %v", code)
	}
}

// An address may open so many connections a second; it is told the limit, a few times a second, and others may connect.
func TestRateOfHandshakes(t *testing.T) {
	c, _ := rated(Rates{HandshakesPerAddress: 5})
	now := session.Instant(time.Hour)
	open := func(from string) (*heardConn, bool) {
		conn := hear(&fromConn{from: from}, Listener{Clock: func() session.Instant { return now }})
		return conn, c.admit(conn)
	}
	for n := range 5 {
		conn, ok := open("10.0.0.1:1")
		if !ok || conn.refusal != nil {
			t.Fatalf("connection %d: %v", n+1, conn.refusal)
		}
		_ = conn.Close()
	}
	told := 0
	for range 10 * MaxRefused {
		conn, kept := open("10.0.0.1:1")
		if !kept {
			continue
		}
		if told++; conn.refusal == nil || !strings.Contains(conn.refusal.Error(), "more than 5 connections a second come from 10.0.0.1 (max-handshakes-per-address)") {
			t.Fatalf("one too many: %v", conn.refusal)
		}
		_ = conn.Close()
	}
	if told != MaxRefused {
		t.Errorf("%d are kept in a second, to be answered", told)
	}
	if conn, ok := open("10.0.0.2:1"); !ok || conn.refusal != nil {
		t.Errorf("from elsewhere: %v", conn.refusal)
	}
	now += session.Instant(time.Second / 5)
	if conn, ok := open("10.0.0.1:1"); !ok || conn.refusal != nil {
		t.Errorf("a little later: %v", conn.refusal)
	}
}

// An address has few connections that have sent nothing; others have room when one sends, or ends.
func TestFewConnectionsAreSilent(t *testing.T) {
	c, _ := rated(Rates{})
	open := func(from string) *heardConn {
		conn := hear(&fromConn{from: from}, Listener{Clock: testbed.Clock()})
		c.admit(conn)
		return conn
	}
	const here = "10.0.0.1:1"
	var silent []*heardConn
	for range maxSilent {
		silent = append(silent, open(here))
	}
	full := func(when string) {
		t.Helper()
		one := open(here)
		if one.refusal == nil || !strings.Contains(one.refusal.Error(), "100 connections from 10.0.0.1 have sent nothing yet") {
			t.Fatalf("%s one more is answered %v", when, one.refusal)
		}
		_ = one.Close()
	}
	room := func(when string) *heardConn {
		t.Helper()
		one := open(here)
		if one.refusal != nil {
			t.Fatalf("%s: %v", when, one.refusal)
		}
		return one
	}
	full("of so many silent ones")
	if one := open("10.0.0.2:1"); one.refusal != nil {
		t.Errorf("from elsewhere: %v", one.refusal)
	}
	silent[0].account.received(nil)
	full("when nothing has arrived")
	silent[0].account.received([]byte{1})
	silent[0].account.received([]byte{2})
	spoken := room("when one has spoken")
	full("when it has spoken for the second time")
	_ = silent[1].Close()
	_ = silent[1].Close()
	last := room("when one was closed")
	full("when it was closed for the second time")
	_ = silent[0].Close()
	full("when one was closed that has spoken")
	for _, one := range append(silent[2:], spoken, last) {
		one.account.received([]byte{1})
	}
	if n := c.from.here["10.0.0.1"].silent.Load(); n != 0 {
		t.Errorf("%d are silent when all have spoken", n)
	}
}

// The memory of those who have left is bounded, and gone when their buckets are full.
func TestWhoHasLeftIsForgotten(t *testing.T) {
	c, _ := rated(Rates{HandshakesPerAddress: 2})
	now := session.Instant(time.Hour)
	for i := range 2 * maxGone {
		_ = arriving(t, c, fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&0xff, i&0xff), "", now).Close()
	}
	if n, order := len(c.from.gone), len(c.from.order); n > maxGone || order > maxGone || n < maxGone/2 {
		t.Errorf("%d addresses are remembered, in a list of %d", n, order)
	}
	now += session.Instant(time.Second / 2)
	_ = arriving(t, c, "10.200.0.0:1", "", now).Close()
	if n := len(c.from.gone); n != 1 {
		t.Errorf("%d addresses are remembered when they have rested", n)
	}
}

// Connections that come all at once are accepted one after the other, as many a second as the processors can do with.
func TestConnectionsAreAcceptedSmoothly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := rated(Rates{})
		clock, began, rate := testbed.Clock(), time.Now(), acceptsPerProcessor*runtime.GOMAXPROCS(0)
		for range 3 * rate {
			c.smooth(clock())
		}
		if took := time.Since(began); took < 3*time.Second-2*acceptBurst || took > 3*time.Second {
			t.Errorf("%d connections were accepted within %v", 3*rate, took)
		}
	})
}
