package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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

// What is taken back while a client is being identified is found by the next look, and calls that have arrived are
// refused from then on.
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
	if err := conn.refused(); err != nil {
		t.Fatal(err)
	}
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
	s := &service{cfg: Config{Logger: slog.New(slog.DiscardHandler), Replica: &turning{}}}
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
	s := &service{cfg: Config{Logger: slog.New(slog.DiscardHandler), Replica: &lookingReplica{look: func() { good = false; conns.Recheck() }}}}
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
	s := &service{cfg: Config{Logger: slog.New(slog.DiscardHandler), Replica: &turning{}}}
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
