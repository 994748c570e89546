package cell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"pgregory.net/rapid"
)

func TestOrigin(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.5:7421": "10.0.0.5", "[::ffff:10.0.0.5]:1": "10.0.0.5", "127.0.0.1:5": "127.0.0.1", "[::1]:5": "::1",
		"[2001:db8::5]:7": "2001:db8::/64", "[2001:db8::6:0:0:1]:7": "2001:db8::/64", "[fe80::1%eth0]:7": "fe80::/64", "host:5": "host", "bufconn": "bufconn",
	} {
		if got := originOf(namedAddr(address)); got != want {
			t.Errorf("a connection from %s counts as one from %s, want %s", address, got, want)
		}
	}
}

type namedAddr string

func (a namedAddr) Network() string { return "test" }
func (a namedAddr) String() string  { return string(a) }

// fromConn is a connection from an address, over which nothing is ever sent.
type fromConn struct {
	net.Conn
	from   string
	closed int
}

func (c *fromConn) RemoteAddr() net.Addr { return namedAddr(c.from) }
func (c *fromConn) Close() error         { c.closed++; return nil }

// TestConnectionsAreCounted opens and closes connections at random and compares with a
// count made anew: one is admitted if there is room in all and for its address, kept to
// be told otherwise, or closed; and what was closed, even twice, is not counted.
func TestConnectionsAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newConnections(rapid.IntRange(1, 100).Draw(t, "all"), rapid.IntRange(1, 50).Draw(t, "each"), prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"}), prometheus.NewCounter(prometheus.CounterOpts{Name: "shed"}), slog.New(slog.DiscardHandler))
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var open []*heardConn
		from, admitted, refused := map[string]int{}, 0, 0
		for range 400 {
			if len(open) > 0 && random.IntN(3) == 0 {
				n := random.IntN(len(open))
				one := open[n]
				open = append(open[:n], open[n+1:]...)
				for range 1 + random.IntN(2) {
					_ = one.Close()
				}
				if one.refusal != nil {
					refused--
				} else {
					admitted--
					from[originOf(one.Conn.RemoteAddr())]--
				}
				continue
			}
			wire := &fromConn{from: fmt.Sprintf("10.0.0.%d:1", random.IntN(4))}
			one := &heardConn{Conn: wire}
			room := admitted < c.all && from[originOf(wire.RemoteAddr())] < c.each
			served := c.admit(one)
			switch {
			case served != (room || refused < maxRefused) || room != (served && one.refusal == nil) || served == (wire.closed > 0):
				t.Fatalf("with %d connections, %v, and %d refused: room %v, served %v, %v", admitted, from, refused, room, served, one.refusal)
			case room:
				admitted++
				from[originOf(wire.RemoteAddr())]++
			case served:
				refused++
			}
			if served {
				open = append(open, one)
			}
			if c.count() != admitted || c.refused != refused {
				t.Fatalf("%d and %d refused are counted; there are %d and %d", c.count(), c.refused, admitted, refused)
			}
		}
		for _, one := range open {
			_ = one.Close()
		}
		if c.open != 0 || len(c.from) != 0 || c.refused != 0 {
			t.Fatalf("all is closed, and %d, %v and %d are counted", c.open, c.from, c.refused)
		}
	})
}

// locate makes a call over a connection of its own, which it returns.
func locate(t *testing.T, address string) (*grpc.ClientConn, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = pb.NewCellClient(conn).Locate(ctx, &pb.LocateRequest{})
	return conn, pb.Error(err)
}

// Somebody who opens very many connections is told that there are too many; those
// that were there are served on, and when some are closed there is room again. Of the
// refused, too, only some are kept.
func TestTooManyConnections(t *testing.T) {
	for name, limit := range map[string]struct {
		all, each int
		why       string
	}{
		"of an address": {all: 5, each: 3, why: "at most 3 are allowed for one address (max-connections-per-address)"},
		"in all":        {all: 3, each: 5, why: "at most 3 are allowed (max-connections)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tooManyConnections(t, limit.all, limit.each, limit.why)
		})
	}
}

func tooManyConnections(t *testing.T, all, each int, why string) {
	most, log := min(all, each), &testbed.Lines{}
	r, err := Start(t.Context(), Config{
		Cell: "local", ID: "r1", Members: []Member{{ID: "r1", Client: "127.0.0.1:1", Raft: "127.0.0.1:2"}}, Data: filepath.Join(t.TempDir(), "r1"), Bootstrap: true,
		Listen: Addresses{Client: "127.0.0.1:0", Raft: "127.0.0.1:0"}, MaxConnections: all, MaxConnectionsPerAddress: each, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Stop(t.Context()) }()
	address := r.cfg.ClientListener.Addr().String()
	var open []*grpc.ClientConn
	for range most {
		conn, err := locate(t, address)
		if err != nil {
			t.Errorf("a connection: %v", err)
		}
		open = append(open, conn)
	}
	conn, err := locate(t, address)
	if !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), why) {
		t.Errorf("one connection too many: %v; want that %q", err, why)
	}
	_ = conn.Close()
	var flood []net.Conn
	for range 3 * maxRefused {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		flood = append(flood, conn)
	}
	testbed.Await(t, "the flood to be refused", func() bool { return counted(t, r, "chubby_client_connections_refused_total") >= 3*maxRefused })
	r.conns.mu.Lock()
	if r.conns.open != most || r.conns.refused > maxRefused {
		t.Errorf("%d connections are open, and %d are kept to be told", r.conns.open, r.conns.refused)
	}
	r.conns.mu.Unlock()
	for _, conn := range open {
		if _, err := pb.NewCellClient(conn).Locate(t.Context(), &pb.LocateRequest{}); err != nil {
			t.Errorf("one that was there: %v", err)
		}
	}
	for _, conn := range flood { // also those that nobody closes on this side
		_ = conn.SetReadDeadline(time.Now().Add(3 * refusedFor))
		if _, err := io.Copy(io.Discard, conn); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a refused connection is kept")
		}
		_ = conn.Close()
	}
	_ = open[0].Close()
	testbed.Await(t, "room", func() bool { return counted(t, r, "chubby_client_connections") == float64(most-1) })
	if open[0], err = locate(t, address); err != nil {
		t.Errorf("there is room, and %v", err)
	}
	if lines := strings.Count(strings.Join(log.Take(), ""), "refused a client's connection"); lines < 1 || lines > 60 {
		t.Errorf("%d lines tell of more than %d refused connections", lines, 3*maxRefused)
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	testbed.Await(t, "all to be closed", func() bool { return counted(t, r, "chubby_client_connections") == 0 })
}
