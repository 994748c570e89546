package cell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// A replica whose addresses are names that its machine cannot resolve listens
// on the configured address, answers there, and tells clients the advertised
// one. Its log begins with a line about itself.
func TestListenBehindAMappedPort(t *testing.T) {
	log, dir := &testbed.Lines{}, t.TempDir()
	r, err := Start(t.Context(), Config{
		Cell: "local", ID: "r1", Members: []Member{{ID: "r1", Client: "inside.invalid:7421", Raft: "inside.invalid:7431", HTTP: "inside.invalid:7441"}},
		Data: filepath.Join(dir, "r1"), Bootstrap: true, Advertise: "outside.invalid:443",
		Listen: Addresses{Client: "127.0.0.1:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0"},
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Stop(t.Context()) }()
	testbed.Await(t, "a master", func() bool { return r.master.Load() != nil })
	if got := r.Health().Address; got != "outside.invalid:443" {
		t.Errorf("clients are told %s", got)
	}
	client := r.cfg.ClientListener.Addr().String()
	conn, err := net.Dial("tcp", client)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	lines := log.Take()
	if len(lines) < 2 || !strings.Contains(lines[0], "msg=starting") {
		t.Fatalf("the log begins with %q", lines)
	}
	text := strings.Join(lines, "")
	for _, want := range []string{
		"msg=started replica=r1 event=replica_started version=" + Version() + " cell=local data=" + filepath.Join(dir, "r1") + " ", fmt.Sprintf(`listens="%s 127.0.0.1:`, client),
		`advertises="outside.invalid:443 inside.invalid:7431 inside.invalid:7441"`, " entries=",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %s:\n%s", want, text)
		}
	}
	taken := r.cfg
	taken.ID, taken.Data, taken.ClientListener, taken.RaftListener, taken.HTTPListener = "r1", t.TempDir(), nil, nil, nil
	taken.Listen.Client = client
	if _, err := Start(t.Context(), taken); api.CodeOf(err) != api.Unavailable || !strings.Contains(err.Error(), "listen on "+client) {
		t.Errorf("an address that is taken: %v", err)
	}
}

// TestStartGoesOnWhenTheStoreFails: a store may fail as soon as Raft runs, before the start has
// logged what it started. The goroutine that calls Start, which may be the main one, must survive
// that, and learn of the end.
func TestStartGoesOnWhenTheStoreFails(t *testing.T) {
	r, err := Start(t.Context(), Config{
		Cell: "local", ID: "r1", Members: []Member{{ID: "r1", Client: "127.0.0.1:1", Raft: "127.0.0.1:2"}},
		Data: filepath.Join(t.TempDir(), "r1"), Bootstrap: true, Listen: Addresses{Client: "127.0.0.1:0", Raft: "127.0.0.1:0"},
	})
	if err != nil {
		t.Fatal(err)
	}
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
	if !goesOn {
		t.Error("the goroutine that starts the replica was ended")
	}
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
	r, err := Start(t.Context(), Config{
		Logger: slog.New(slog.NewTextHandler(&said, nil)), Cell: "local", ID: "r1", Members: []Member{{ID: "r1", Client: "127.0.0.1:1", Raft: "127.0.0.1:2", HTTP: "127.0.0.1:3"}},
		Data: filepath.Join(t.TempDir(), "r1"), Bootstrap: true, Listen: Addresses{Raft: "127.0.0.1:0"}, ClientListener: clients, HTTPListener: operators,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Stop(t.Context()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := grpc.NewClient(clients.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := pb.NewCellClient(conn).Locate(ctx, &pb.LocateRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("a client: %v", err)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+operators.Addr().String()+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatalf("an operator: %v", err)
	}
	_ = reply.Body.Close()
	if err := r.Stop(ctx); err != nil { // everything logged is written by then
		t.Error(err)
	}
	for _, line := range []string{"cannot accept on the client port", "http: Accept error"} {
		if !strings.Contains(said.String(), line) {
			t.Errorf("the log does not have %q:\n%s", line, &said)
		}
	}
}
