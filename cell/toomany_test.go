package cell

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/internal/wire"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// locate makes a call over a connection of its own, which it returns.
func locate(t *testing.T, address string) (*grpc.ClientConn, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = pb.NewCellClient(conn).Locate(ctx, &pb.LocateRequest{})
	return conn, pb.Error(err)
}

// A client that opens very many connections gets an error that says so. Earlier connections are
// served on, and when some are closed there is room again. Only some of the refused ones are kept
// open.
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
	for range 3 * wire.MaxRefused {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		flood = append(flood, conn)
	}
	testbed.Await(t, "the flood to be refused", func() bool { return counted(t, r, "chubby_client_connections_refused_total") >= 3*wire.MaxRefused })
	if open, refused := r.conns.Count(), r.conns.Refused(); open != most || refused > wire.MaxRefused {
		t.Errorf("%d connections are open, and %d refused ones are kept", open, refused)
	}
	for _, conn := range open {
		if _, err := pb.NewCellClient(conn).Locate(t.Context(), &pb.LocateRequest{}); err != nil {
			t.Errorf("an earlier connection: %v", err)
		}
	}
	for _, conn := range flood { // also those that this side does not close
		_ = conn.SetReadDeadline(time.Now().Add(3 * wire.RefusedFor))
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
		t.Errorf("%d lines tell of more than %d refused connections", lines, 3*wire.MaxRefused)
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	testbed.Await(t, "all to be closed", func() bool { return counted(t, r, "chubby_client_connections") == 0 })
}
