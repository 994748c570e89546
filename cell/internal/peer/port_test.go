package peer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/loglimit"
	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/internal/seeds"
)

// FuzzDecodeHello: a hello is never misread, and no input makes a replica
// panic.
func FuzzDecodeHello(f *testing.F) {
	seeds.Add(f)
	for _, h := range []hello{{}, {kind: raftStream, cell: "foo", from: "r1", to: "r2", client: "h:7421", raft: "h:7431"}, {kind: 9, verdict: 9, cell: strings.Repeat("x", MaxText)}} {
		buf, err := h.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(buf)
		buf = bytes.Clone(buf)
		buf[7], buf[8] = 0xff, 0xff // a length beyond the end
		f.Add(buf)
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, buf []byte) {
		h, err := decodeHello(buf)
		if err != nil {
			return
		}
		again, err := h.encode()
		if err != nil {
			t.Fatalf("%+v was read and cannot be written: %v", h, err)
		}
		if back, err := decodeHello(again); err != nil || back != h {
			t.Fatalf("%+v became %+v, %v", h, back, err)
		}
	})
}

func TestHelloIsBounded(t *testing.T) {
	if _, err := (hello{cell: strings.Repeat("x", MaxText+1)}).encode(); api.CodeOf(err) != api.InvalidArgument {
		t.Errorf("a name that is too long: %v", err)
	}
	buf, err := hello{kind: raftStream, cell: "foo", from: "r1", to: "r2"}.encode()
	if err != nil || len(buf) != helloSize {
		t.Fatalf("%d bytes, %v", len(buf), err)
	}
	for i := range buf {
		bad := bytes.Clone(buf)
		bad[i] ^= 1
		if _, err := decodeHello(bad); !errors.Is(err, errHello) {
			t.Fatalf("with byte %d changed: %v", i, err)
		}
	}
}

// newTestPort opens replica id of a cell at a host of the same name.
func newTestPort(wire *memnet.Network, cell, id string, edits ...func(*PortConfig)) (*Port, *testbed.Lines) {
	log := &testbed.Lines{}
	cfg := PortConfig{
		Lost:     func(string) {},
		Passport: testPassport(cell, id), Cell: cell, ID: id, Client: id + ".client", Address: id, Listen: wire.Listen(id), Connect: wire.Dialer(id),
		MemberAt: func(address string) (string, bool) { return address, address != "nobody" },
		Logger:   slog.New(slog.NewTextHandler(log, nil)),
	}
	for _, edit := range edits {
		edit(&cfg)
	}
	return OpenPort(cfg), log
}

// TestPortRefusesStrangers: every caller that is not a peer of this cell is
// refused, and is logged, and never reaches Raft. It gets the reason if it can
// understand it.
func TestPortRefusesStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := memnet.New()
		port, log := newTestPort(wire, "foo", "r1")
		defer port.close()
		for name, c := range map[string]struct {
			send    func() []byte
			verdict helloVerdict // 0: no answer
			logged  string
		}{
			"garbage":           {send: func() []byte { return bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 100) }, logged: "not a hello"},
			"silence":           {send: func() []byte { return []byte("chby") }, logged: "read a hello"},
			"later version":     {send: func() []byte { return encoded(t, hello{kind: raftStream, cell: "foo", from: "r2", to: "r1"}, 4, 3) }, logged: "version 3"},
			"another cell":      {send: func() []byte { return encoded(t, hello{kind: raftStream, cell: "bar", from: "r2", to: "r1"}, 0, 'c') }, verdict: helloWrongCell, logged: "cell bar"},
			"for another":       {send: func() []byte { return encoded(t, hello{kind: probeStream, cell: "foo", from: "r2", to: "r3"}, 0, 'c') }, verdict: helloWrongReplica, logged: "called for"},
			"under our own ID":  {send: func() []byte { return encoded(t, hello{kind: raftStream, cell: "foo", from: "r1", to: "r1"}, 0, 'c') }, verdict: helloSameID, logged: "this one's ID"},
			"for something new": {send: func() []byte { return encoded(t, hello{kind: 77, cell: "foo", from: "r2", to: "r1"}, 0, 'c') }, verdict: helloWrongReplica, logged: "kind 77"},
		} {
			testbed.Pass(2 * loglimit.Every)
			log.Take()
			conn := testbed.Must(wire.Dialer("stranger")("r1", time.Second))(t)
			began := time.Now()
			testbed.NoErr(t, testbed.ErrOf(conn.Write(c.send())))
			answer, _ := io.ReadAll(conn) // ends when the port closes it
			if took := time.Since(began); took > helloTimeout {
				t.Errorf("%s: let hang for %v", name, took)
			}
			h, err := decodeHello(answer)
			if c.verdict != 0 && (err != nil || h.verdict != c.verdict || h.cell != "foo" || h.from != "r1") {
				t.Errorf("%s: answered %+v, %v", name, h, err)
			}
			if c.verdict == 0 && len(answer) != 0 {
				t.Errorf("%s: answered %q", name, answer)
			}
			synctest.Wait()
			if lines := log.Take(); len(lines) != 1 || !strings.Contains(lines[0], c.logged) {
				t.Errorf("%s: logged %q, want one line with %q", name, lines, c.logged)
			}
		}
		select {
		case <-port.streams:
			t.Error("a stranger's connection reached raft")
		default:
		}
		if port.ClientAddress("r2") != "" {
			t.Error("a refused caller's client address was used")
		}
	})
}

// encoded writes a hello and then changes one byte.
func encoded(t *testing.T, h hello, at int, to byte) []byte {
	t.Helper()
	buf := testbed.Must(h.encode())(t)
	buf[at] = to
	return buf
}

// TestBootstrapIsNotBelieved: a stranger may ask what a replica has. Its own words do
// not change the address to which clients are sent.
func TestBootstrapIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := memnet.New()
		us, peer := newTraveller(t, wire, memberOf("c1", "r1", "r1-first")), newTraveller(t, wire, memberOf("c1", "r2", "r2-first"))
		conn := testbed.Must(peer.dial(probeStream, "r1", "r1", time.Second))(t)
		conn.Close()
		wiped := newTraveller(t, wire, identity.Replica{ID: "r2", Incarnation: "r2-new"})
		wiped.Client = "elsewhere"
		testbed.NoErr(t, testbed.ErrOf(wiped.AskBootstrap(identity.Member{ID: "r1", Raft: "r1"})))
		synctest.Wait()
		if at := us.ClientAddress("r2"); at != "r2.client" {
			t.Errorf("clients reach r2 at %q, as another than r2 said", at)
		}
	})
}

// TestLongestReport: a replica of a cell that has had as many others as a cell can have still tells newcomers of all of them.
func TestLongestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire, roster := memnet.New(), &identity.Roster{CellID: strings.Repeat("c", 64)}
		for i := range 1000 { // raftfsm's bounds
			roster.Members = append(roster.Members, identity.Member{ID: fmt.Sprintf("%064d", i), Raft: strings.Repeat("h", 255), Incarnation: strings.Repeat("i", 64), Left: true})
		}
		us, _ := newTestPort(wire, "c1", "r1", func(c *PortConfig) {
			c.Bootstrap = func() BootstrapReport { return BootstrapReport{ID: "r1", Roster: roster} }
		})
		defer us.close()
		newcomer, _ := newTestPort(wire, "c1", "r2")
		defer newcomer.close()
		got, err := newcomer.AskBootstrap(identity.Member{ID: "r1", Raft: "r1"})
		if err != nil || got.Roster == nil || len(got.Roster.Members) != len(roster.Members) {
			t.Errorf("of a roster of %d replicas, %v", len(roster.Members), err)
		}
	})
}

// TestPortSurvivesFlood: strangers that connect and send nothing keep no peer
// out, and fill neither memory nor the log.
func TestPortSurvivesFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := memnet.New()
		port, log := newTestPort(wire, "foo", "r1")
		defer port.close()
		peer, _ := newTestPort(wire, "foo", "r2")
		defer peer.close()
		for range 10 * maxHalfOpen {
			testbed.NoErr(t, testbed.ErrOf(wire.Dialer("stranger")("r1", time.Second)))
		}
		synctest.Wait()
		port.mu.Lock()
		open, half := len(port.conns), len(port.half)
		port.mu.Unlock()
		if half != maxHalfOpen || open != maxHalfOpen {
			t.Errorf("%d half-open connections of %d, want %d", half, open, maxHalfOpen)
		}
		if lines := log.Take(); len(lines) != 1 {
			t.Errorf("%d lines logged in an instant, want 1", len(lines))
		}
		if _, err := peer.dial(raftStream, "r1", "r1", time.Second); err != nil {
			t.Errorf("a peer was kept out: %v", err)
		}
		testbed.Pass(2 * helloTimeout)
		port.mu.Lock()
		open, half = len(port.conns), len(port.half)
		port.mu.Unlock()
		if half != 0 || open != 1 {
			t.Errorf("later %d half-open of %d connections, want only the peer's", half, open)
		}
		for range 2 * maxPortConns {
			_, _ = peer.dial(raftStream, "r1", "r1", time.Second) // refused from some point on
		}
		port.mu.Lock()
		defer port.mu.Unlock()
		if len(port.conns) > maxPortConns {
			t.Errorf("%d connections, the bound is %d", len(port.conns), maxPortConns)
		}
	})
}

// TestPortChecksWhomItReaches: a caller does not talk to the wrong replica.
func TestPortChecksWhomItReaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := memnet.New()
		port, _ := newTestPort(wire, "foo", "r1")
		defer port.close()
		peer, _ := newTestPort(wire, "foo", "r2")
		defer peer.close()
		foreign, _ := newTestPort(wire, "bar", "r9")
		defer foreign.close()
		if _, err := port.dial(raftStream, "r2", "r2", time.Second); err != nil {
			t.Errorf("a peer: %v", err)
		}
		synctest.Wait() // the peer notes it after it has answered
		if port.ClientAddress("r2") != "r2.client" || peer.ClientAddress("r1") != "r1.client" {
			t.Errorf("client addresses %q and %q: each must learn the other's", port.ClientAddress("r2"), peer.ClientAddress("r1"))
		}
		if _, err := port.dial(raftStream, "r3", "r2", time.Second); api.CodeOf(err) != api.Unavailable {
			t.Errorf("another replica there: %v", err)
		}
		if _, err := port.dial(raftStream, "r9", "r9", time.Second); api.CodeOf(err) != api.WrongCell {
			t.Errorf("another cell there: %v", err)
		}
		if _, err := port.dial(raftStream, "r4", "elsewhere", time.Second); api.CodeOf(err) != api.Unavailable {
			t.Errorf("nobody there: %v", err)
		}
		if _, err := (raftStreams{port: port}).Dial("nobody", time.Second); api.CodeOf(err) != api.Unavailable {
			t.Errorf("an unused address: %v", err)
		}
		impostor := wire.Listen("impostor")
		go func() {
			conn, err := impostor.Accept()
			if err == nil {
				_, _ = readHello(conn)
				_ = writeHello(conn, hello{kind: raftStream, verdict: helloAccepted, cell: "foo", from: "r8", to: "r1"})
			}
		}()
		if _, err := port.dial(raftStream, "r6", "impostor", time.Second); api.CodeOf(err) != api.Unavailable {
			t.Errorf("another replica that accepts: %v", err)
		}
		mute := wire.Listen("mute")
		heard := make(chan net.Conn, 1)
		go func() {
			conn, err := mute.Accept()
			if err == nil {
				heard <- conn
			}
		}()
		began := time.Now()
		if _, err := port.dial(raftStream, "r5", "mute", time.Second); err == nil || time.Since(began) != time.Second {
			t.Errorf("a port that accepts and sends nothing: %v after %v", err, time.Since(began))
		}
		_ = (<-heard).Close()
		_ = mute.Close()
	})
}

// TestSilence: from that moment, a silenced replica sends nothing on any
// connection, and opens none.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := memnet.New()
		port, _ := newTestPort(wire, "foo", "r1")
		peer, _ := newTestPort(wire, "foo", "r2")
		defer peer.close()
		out := testbed.Must(port.dial(raftStream, "r2", "r2", time.Second))(t)
		got := <-peer.streams
		in := testbed.Must(peer.dial(raftStream, "r1", "r1", time.Second))(t)
		<-port.streams
		port.Silence()
		for _, end := range []net.Conn{got, in} {
			if n, err := end.Read(make([]byte, 1)); err == nil {
				t.Errorf("a peer still reads %d bytes", n)
			}
		}
		if _, err := out.Write([]byte("x")); err == nil {
			t.Error("it still sends")
		}
		if _, err := port.dial(probeStream, "r2", "r2", time.Second); !errors.Is(err, errSilenced) {
			t.Errorf("it still connects: %v", err)
		}
		if _, err := peer.dial(raftStream, "r1", "r1", time.Second); err == nil {
			t.Error("it still accepts")
		}
		accepted := make(chan error, 1)
		go func() {
			_, err := raftStreams{port: port}.Accept()
			accepted <- err
		}()
		synctest.Wait()
		select {
		case err := <-accepted:
			t.Errorf("Accept returned %v: raft would log that in a loop", err)
		default:
		}
		port.Silence()
		port.close()
		port.close()
		if err := <-accepted; !errors.Is(err, errSilenced) {
			t.Errorf("Accept after close: %v", err)
		}
	})
}
