package cell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func TestListenOn(t *testing.T) {
	for advertised, want := range map[string]string{
		"10.0.0.5:7421": "10.0.0.5:7421", "[2001:db8::5]:7421": "[2001:db8::5]:7421", "127.0.0.1:7421": "127.0.0.1:7421", "localhost:7421": "localhost:7421",
		"chubby1:7421": ":7421", "chubby1.example.org:7421": ":7421", "": "",
	} {
		if got := listenOn(advertised); got != want {
			t.Errorf("for %q it listens on %q, want %q", advertised, got, want)
		}
	}
}

// A replica whose addresses are names that its machine cannot resolve listens on the configured address, answers there,
// and tells clients the advertised one. Its log begins with a line about itself.
func TestListenBehindAMappedPort(t *testing.T) {
	log, dir := &testbed.Lines{}, t.TempDir()
	r := must(Start(t.Context(), Config{
		Cell: "local", ID: "r1", Members: []Member{{ID: "r1", Client: "inside.invalid:7421", Raft: "inside.invalid:7431", HTTP: "inside.invalid:7441"}},
		Data: filepath.Join(dir, "r1"), Bootstrap: true, Advertise: "outside.invalid:443",
		Listen: Addresses{Client: "127.0.0.1:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0"},
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	}))(t)
	defer func() { _ = r.Stop(t.Context()) }()
	testbed.Await(t, "a master", func() bool { return r.master.Load() != nil })
	equal(t, r.Health().Address, "outside.invalid:443", "clients are told %s")
	client := r.cfg.ClientListener.Addr().String()
	conn := must(net.Dial("tcp", client))(t)
	_ = conn.Close()
	lines := log.Take()
	stopIf(t, len(lines) < 2 || !strings.Contains(lines[0], "msg=starting"), "the log begins with %q", lines)
	text := strings.Join(lines, "")
	for _, want := range []string{
		"msg=started replica=r1 event=replica_started version=" + Version() + " cell=local data=" + filepath.Join(dir, "r1") + " ", fmt.Sprintf(`listens="%s 127.0.0.1:`, client),
		`advertises="outside.invalid:443 inside.invalid:7431 inside.invalid:7441"`, " entries=",
	} {
		failIf(t, !strings.Contains(text, want), "the log lacks %s:\n%s", want, text)
	}
	taken := r.cfg
	taken.ID, taken.Data, taken.ClientListener, taken.RaftListener, taken.HTTPListener = "r1", t.TempDir(), nil, nil, nil
	taken.Listen.Client = client
	if _, err := Start(t.Context(), taken); api.CodeOf(err) != api.Unavailable || !strings.Contains(err.Error(), "listen on "+client) {
		t.Errorf("an address that is taken: %v", err)
	}
}

// TestStartGoesOnWhenTheStoreFails: a store may fail as soon as Raft runs, before the start has logged what it started.
// The goroutine that calls Start, which may be the main one, must survive that, and learn of the end.
func TestStartGoesOnWhenTheStoreFails(t *testing.T) {
	r := startAlone(t, func(*Config) {})
	failed := make(chan struct{})
	go func() { // the failing store ends it
		defer close(failed)
		_ = r.stores.Logs().StoreLogs([]*raft.Log{{Index: 1 << 20, Data: make([]byte, disk.MaxLogEntry+1)}})
	}()
	<-failed
	starting, goesOn := make(chan struct{}), false
	go func() {
		defer close(starting)
		r.logStart()
		goesOn = true
	}()
	<-starting
	failIf(t, !goesOn, "the goroutine that starts the replica was ended")
	if <-r.Done(); !errors.Is(r.Err(), api.TooLarge) {
		t.Errorf("it ended with %v", r.Err())
	}
}

// stumbling is a listener whose first calls of Accept fail.
type stumbling struct {
	net.Listener
	left atomic.Int32
}

// Accept implements net.Listener.
func (l *stumbling) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: os.NewSyscallError("accept4", syscall.ENOMEM)}
	}
	return l.Listener.Accept()
}

// TestPortsOutliveAnError: a replica to which the system could not give a connection continues to
// accept: it must not stay master of a cell in which no client reaches it.
func TestPortsOutliveAnError(t *testing.T) {
	clients, operators := &stumbling{Listener: testbed.Loopback(t)}, &stumbling{Listener: testbed.Loopback(t)}
	clients.left.Store(2)
	operators.left.Store(2)
	var said bytes.Buffer
	r := startAlone(t, func(cfg *Config) {
		cfg.Logger, cfg.ClientListener, cfg.HTTPListener = slog.New(slog.NewTextHandler(&said, nil)), clients, operators
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := must(grpc.NewClient(clients.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer func() { _ = conn.Close() }()
	report(t, errOf(pb.NewCellClient(conn).Locate(ctx, &pb.LocateRequest{}, grpc.WaitForReady(true))), "a client")
	q := must(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+operators.Addr().String()+"/healthz", nil))(t)
	reply, err := http.DefaultClient.Do(q)
	noErr(t, err, "an operator")
	_ = reply.Body.Close()
	report(t, r.Stop(ctx)) // everything logged is written by then
	for _, line := range []string{"cannot accept on the client port", "http: Accept error"} {
		failIf(t, !strings.Contains(said.String(), line), "the log does not have %q:\n%s", line, &said)
	}
}

// locate makes a call over a connection of its own, which it returns.
func locate(t *testing.T, address string) (*grpc.ClientConn, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	noErr(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = pb.NewCellClient(conn).Locate(ctx, &pb.LocateRequest{})
	return conn, pb.Error(err)
}

// A client that opens very many connections gets an error that says so. Earlier connections are served on, and when
// some are closed there is room again. Only some of the refused ones are kept open.
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
	r := startAlone(t, func(cfg *Config) {
		cfg.MaxConnections, cfg.MaxConnectionsPerAddress, cfg.Logger = all, each, slog.New(slog.NewTextHandler(log, nil))
	})
	address := r.cfg.ClientListener.Addr().String()
	var open []*grpc.ClientConn
	for range most {
		conn, err := locate(t, address)
		report(t, err, "a connection")
		open = append(open, conn)
	}
	conn, err := locate(t, address)
	if !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), why) {
		t.Errorf("one connection too many: %v; want that %q", err, why)
	}
	_ = conn.Close()
	var flood []net.Conn
	for range 3 * wire.MaxRefused {
		conn := must(net.Dial("tcp", address))(t)
		flood = append(flood, conn)
	}
	testbed.Await(t, "the flood to be refused", func() bool { return counted(t, r, "chubby_client_connections_refused_total") >= 3*wire.MaxRefused })
	if open, refused := r.ports.conns.Count(), r.ports.conns.Refused(); open != most || refused > wire.MaxRefused {
		t.Errorf("%d connections are open, and %d refused ones are kept", open, refused)
	}
	for _, conn := range open {
		report(t, errOf(pb.NewCellClient(conn).Locate(t.Context(), &pb.LocateRequest{})), "an earlier connection")
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
