package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/internal/frames"
	"github.com/chubbylock/chubby/internal/seeds"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"google.golang.org/grpc"
)

// scripted are certificates of which a test says whom they name.
type scripted struct {
	identify func() (string, func() bool, error)
}

func (scripted) Accept(net.Conn) *tls.Conn { return nil }

func (scripted) Speaker([]*x509.Certificate) (string, func() bool, error) { return "", nil, nil }

func (s scripted) Identify([]*x509.Certificate) (string, func() bool, error) { return s.identify() }

// ends is a connection that tells when it was closed.
type ends struct {
	fromConn
	closed chan struct{}
}

func (e *ends) Close() error {
	close(e.closed)
	return nil
}

// connected is a connection whose client is about to be identified.
func connected(t *testing.T, identify func() (string, func() bool, error)) (*Connections, *heardConn, *ends) {
	t.Helper()
	conns := NewConnections(Bounds{Connections: 10, PerAddress: 10, Memory: 1 << 30}, untold(), slog.New(slog.DiscardHandler))
	under := &ends{fromConn: fromConn{from: "10.0.0.1:1"}, closed: make(chan struct{})}
	conn := hear(under, Listener{Clock: testbed.Clock(), Certificates: scripted{identify}})
	if !conns.admit(conn) {
		t.Fatal("it is refused")
	}
	return conns, conn, under
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// The next look finds a credential that is taken back while a client is being identified, and refuses calls
// that have arrived.
func TestRecheckFindsWhomItMissed(t *testing.T) {
	good := true
	var conns *Connections
	conns, conn, under := connected(t, func() (string, func() bool, error) {
		good = false // the files have changed since
		if n := conns.Recheck(); n != 0 {
			t.Errorf("%d connections are closed that nobody has identified", n)
		}
		return "alice", func() bool { return good }, nil
	})
	conn.identify(make([]*x509.Certificate, 1))
	testbed.NoErr(t, conn.refused())
	if n := conns.Recheck(); n != 1 || !isClosed(under.closed) {
		t.Errorf("%d connections are closed", n)
	}
	if err := conn.refused(); !errors.Is(err, api.Unauthenticated) {
		t.Errorf("calls that have arrived: %v", err)
	}
	if n := conns.Recheck(); n != 0 {
		t.Errorf("%d connections are closed again", n)
	}
}

// A client that is refused stays for a while, to be told why, and nothing of it stays longer than its connection.
func TestRefusedClientsLeaveNothing(t *testing.T) {
	refuse := func() (string, func() bool, error) { return "", nil, errors.New("no") }
	synctest.Test(t, func(t *testing.T) {
		_, conn, under := connected(t, refuse)
		conn.identify(make([]*x509.Certificate, 1))
		time.Sleep(RefusedFor - 1)
		if isClosed(under.closed) {
			t.Error("it is closed before it could ask why")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !isClosed(under.closed) {
			t.Error("it stays")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		for name, order := range map[string]func(*heardConn){
			"closed after": func(c *heardConn) { c.identify(make([]*x509.Certificate, 1)); _ = c.Close() },
			"closed while": func(c *heardConn) { _ = c.Close(); c.identify(make([]*x509.Certificate, 1)) },
		} {
			_, conn, _ := connected(t, refuse)
			order(conn)
			if conn.identity.Load().expiry.Stop() {
				t.Errorf("%s: a timer holds it for %v", name, RefusedFor)
			}
		}
	})
}

// turning becomes the master after it was asked once.
type turning struct {
	Replica
	asked int
}

func (r *turning) Master() (*master.Master, error) {
	if r.asked++; r.asked == 1 {
		return nil, api.Errorf(api.NotMaster, "not yet")
	}
	return new(master.Master), nil
}

// A call in another's session is refused also by a replica that becomes the master between two questions.
func TestOwnerIsAskedOfTheMaster(t *testing.T) {
	s := newService(Config{Logger: slog.New(slog.DiscardHandler), Replica: &turning{}})
	_, conn, _ := connected(t, func() (string, func() bool, error) { return "bob", func() bool { return true }, nil })
	conn.identify(make([]*x509.Certificate, 1))
	_, _, err := throughDoor(called(t, conn), s, pb.Chubby_KeepAlive_FullMethodName, &pb.KeepAliveRequest{Caller: &pb.Caller{Session: []byte("alice's")}},
		func(context.Context, any) (any, error) {
			t.Error("it reaches the master, and nobody has looked whose session it is")
			return &pb.KeepAliveReply{}, nil
		})
	if !errors.Is(pb.Error(err), api.NotMaster) {
		t.Error(err)
	}
}

// lookingReplica looks at the connections again (as the replica does every five seconds) while a call is served.
type lookingReplica struct {
	Replica
	look func()
}

func (r *lookingReplica) Master() (*master.Master, error) { r.look(); return new(master.Master), nil }

// A call whose connection's token ends while it is served is still mallory's, and not that of "", who may see and do everything.
func TestCallsKeepTheirPrincipal(t *testing.T) {
	good := true
	conns, conn, _ := connected(t, func() (string, func() bool, error) { return "mallory", func() bool { return good }, nil })
	conn.identify(make([]*x509.Certificate, 1))
	s := newService(Config{Logger: slog.New(slog.DiscardHandler), Replica: &lookingReplica{look: func() { good = false; conns.Recheck() }}})
	who := "not served"
	// As Backup, ListLocks, Explain, ListQuotas and ListSessions do: they ask for the master, and then who calls.
	_, _, err := throughDoor(called(t, conn), s, pb.Chubby_Backup_FullMethodName, &pb.BackupRequest{},
		func(ctx context.Context, _ any) (any, error) {
			return onMaster(s, "backup", "", func(*master.Master) (*pb.BackupReply, error) {
				who = principalOf(ctx)
				return &pb.BackupReply{}, nil
			})
		})
	if who != "mallory" {
		t.Errorf("mallory's call is served as that of %q, %v", who, err)
	}
}

// A message in a stream that is read after its connection's token has ended is refused.
func TestStreamsEndWithTheirClient(t *testing.T) {
	good := true
	conns, conn, _ := connected(t, func() (string, func() bool, error) { return "mallory", func() bool { return good }, nil })
	conn.identify(make([]*x509.Certificate, 1))
	s := newService(Config{Logger: slog.New(slog.DiscardHandler), Replica: &turning{}})
	_, err := s.serve(&frames.Method{Name: "/x/KeepAlives", Stream: func(_ any, stream grpc.ServerStream) error {
		good = false
		conns.Recheck()
		return stream.RecvMsg(&pb.LocateRequest{})
	}}, arrivedStream{ctx: called(t, conn)})
	if !errors.Is(pb.Error(err), api.Unauthenticated) {
		t.Error("a message is taken from a client that was cut off:", err)
	}
}

// People have to see by what two principals differ: a name in a list, or in the log, is no other than it looks.
func TestPrincipalsCanBeSeen(t *testing.T) {
	for _, name := range []string{"ops.example.org", "spiffe://acme/billing", "system:serviceaccount:shop:cart", "Jürgen Müller", "世界", "O'Neill, \"Bob\"", "a\u0301", "👍"} {
		if err := CheckPrincipal(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for what, hidden := range map[string]string{
		"no width": "\u200b", "a joiner": "\u200d", "right to left": "\u202e", "an isolate": "\u2066", "a soft hyphen": "\u00ad", "a byte order mark": "\ufeff", "a tag": "\U000e0041",
		"a line separator": "\u2028", "a hard space": "\u00a0", "a wide space": "\u3000", "a filler": "\u3164", "a blank of Braille": "\u2800", "a variation": "\ufe0e", "for nobody's use": "\ue000",
		"a control": "\x01", "the end of a line": "\n", "another control": "\u009b",
	} {
		for _, name := range []string{"ops" + hidden + ".example.org", hidden + "ops", "ops" + hidden} {
			if err := CheckPrincipal(name); api.CodeOf(err) != api.InvalidArgument || !strings.Contains(err.Error(), "cannot be seen") || strings.Contains(err.Error(), hidden) {
				t.Errorf("%s, %q: %v", what, name, err)
			}
		}
	}
}

func someHandle() master.Handle {
	return master.Handle{
		Owner: namespace.Owner{Session: 7, Handle: 300}, Node: namespace.Ref{Name: "/a/b", Instance: 41},
		Rights: namespace.ToRead | namespace.ToWrite, Ephemeral: true, Delay: 3 * time.Second, Epoch: 12,
		Events: master.EventSet(0).With(api.EventContentsModified), Precondition: raftfsm.Precondition{Lock: "/lock", Mode: api.Shared, Generation: 9},
	}
}

// A handle token carries all that a later master needs to recreate the handle:
// its mode, and the master that made it (Chubby §2.3).
func TestHandleTokenSaysItAll(t *testing.T) {
	s := newSigner([]byte("secret"))
	for _, want := range []master.Handle{someHandle(), {}, {Directory: true, Node: namespace.Ref{Instance: 1}}} {
		if got, err := s.parseHandle(s.handle(want)); err != nil || got != want {
			t.Errorf("got  %+v (%v)\nwant %+v", got, err, want)
		}
	}
}

// Check digits: a client cannot forge a handle, nor change one (Chubby §2.3).
func TestHandleTokenCannotBeForged(t *testing.T) {
	s := newSigner([]byte("secret"))
	token := s.handle(someHandle())
	for i := range token {
		forged := bytes.Clone(token)
		forged[i] ^= 1
		if _, err := s.parseHandle(forged); !errors.Is(err, api.BadHandle) {
			t.Errorf("with byte %d changed: %v", i, err)
		}
	}
	if _, err := newSigner([]byte("another cell")).parseHandle(token); !errors.Is(err, api.BadHandle) {
		t.Errorf("of another cell: %v", err)
	}
	if _, err := s.parseHandle(s.session(7)); !errors.Is(err, api.BadHandle) {
		t.Errorf("a session in place of a handle: %v", err)
	}
}

// FuzzTokens: whatever a client sends, reading it does not panic. A token that
// was not sealed is refused, and a sealed one with odd fields does no harm.
func FuzzTokens(f *testing.F) {
	seeds.Add(f)
	s := newSigner([]byte("secret"))
	f.Add(s.handle(someHandle()))
	f.Add(s.session(7))
	f.Add(s.ticket(master.Ticket{Epoch: 3, Number: 4}, namespace.Ref{Name: "/f", Instance: 9}, 7, 300))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, token := range [][]byte{data, s.seal(handleToken, data), s.seal(sessionToken, data), s.seal(ticketToken, data)} {
			if h, err := s.parseHandle(token); err == nil {
				if again, err := s.parseHandle(s.handle(h)); err != nil || again != h {
					t.Errorf("%+v reads back as %+v (%v)", h, again, err)
				}
			}
			_, _ = s.parseSession(token)                                             // must not panic
			_ = s.parseTicket(token, namespace.Ref{Name: "/f", Instance: 9}, 7, 300) // must not panic
		}
	})
}

// A ticket is valid only for the lock in whose queue it was given.
func TestTicketOfAnotherLock(t *testing.T) {
	s := newSigner(make([]byte, 32))
	a, b := namespace.Ref{Name: "/a", Instance: 3}, namespace.Ref{Name: "/b", Instance: 4}
	given := master.Ticket{Epoch: 1, Number: 5}
	token := s.ticket(given, a, 7, 9)
	if got := s.parseTicket(token, a, 7, 9); got != given {
		t.Errorf("%+v reads back as %+v", given, got)
	}
	if got := s.parseTicket(token, b, 7, 9); got != (master.Ticket{}) {
		t.Errorf("for another lock it is %+v", got)
	}
}

// A token is known by the secret with which its check digits were right, and by all of
// its bytes; so many are remembered, and no long ones.
func TestVerifiedTokens(t *testing.T) {
	var c verified[int]
	one, other, token := []byte("secret"), []byte("another"), []byte("token")
	if _, ok := c.get(nil, token); ok {
		t.Error("a token is known before it was put")
	}
	c.put(one, token, 7)
	if value, ok := c.get(one, token); !ok || value != 7 {
		t.Errorf("the token says %d (%v), want 7", value, ok)
	}
	if _, ok := c.get(one, []byte("tokem")); ok {
		t.Error("a token with other digits is known")
	}
	if _, ok := c.get(other, token); ok {
		t.Error("the token is known with another secret")
	}
	c.put(other, []byte("its own"), 8)
	if _, ok := c.get(other, token); ok {
		t.Error("a token of another secret is known, after one of this secret was put")
	}
	c.put(one, make([]byte, maxVerifiedSize+1), 9)
	if _, ok := c.get(one, make([]byte, maxVerifiedSize+1)); ok {
		t.Error("a long token is known")
	}
	for n := range uint64(3 * maxVerified) {
		c.put(one, binary.AppendUvarint(nil, n), 1)
		if len(c.values) > maxVerified {
			t.Fatalf("%d tokens are remembered", len(c.values))
		}
	}
}
