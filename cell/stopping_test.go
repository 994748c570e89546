package cell

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// A stop ends in bounded time, even if a disk operation hangs, and reports it:
// the process that waits for it has to end.
func TestStopEndsThoughTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		r := &Replica{
			cfg: Config{ID: "r1", Data: "d"}, handing: make(chan struct{}, 1), epochsEnded: make(chan struct{}), done: make(chan struct{}),
			cancel: func(error) {}, clients: wire.NewServer(wire.Config{}),
		}
		r.logs, r.log = newLogQueue(slog.New(slog.DiscardHandler))
		close(r.epochsEnded)
		r.work.Go(func() { <-hangs })
		late := errors.New("it is late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, late)
		defer cancel()
		began, stopped := time.Now(), make(chan error, 1)
		go func() { stopped <- r.Stop(ctx) }()
		select {
		case err := <-stopped:
			if took := time.Since(began); !errors.Is(err, late) || took < 10*time.Second {
				t.Errorf("it stopped after %v: %v", took, err)
			}
		case <-time.After(time.Minute):
			t.Error("it does not return")
		}
		close(hangs)
		<-r.Done()
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("once it has stopped: %v", err)
		}
	})
}

// A stopping master that finds no replica to hand over to does not stay the leader while it waits
// for its clients: the others elect another.
func TestStopDoesNotKeepTheMastership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dial func(string, time.Duration) (net.Conn, error)
		replicas := startCell(t, 3, func(cfg *Config) {
			if cfg.ID == "r1" {
				dial = cfg.Dial
			}
		})
		was := masterOf(replicas)
		conn, err := grpc.NewClient("passthrough:///"+was+":client", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(_ context.Context, address string) (net.Conn, error) { return dial(address, time.Second) }))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, pb.Cell_Locate_FullMethodName); err != nil { // sends no request
			t.Fatal(err)
		}
		if _, err := pb.NewCellClient(conn).Locate(t.Context(), &pb.LocateRequest{}); err != nil { // the replica has read the stream's beginning, too
			t.Fatal(err)
		}
		replicas[was].prober.Close() // so that no replica answers
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began, stopped := time.Now(), make(chan error, 1)
		go func() { stopped <- replicas[was].Stop(ctx) }()
		testbed.Await(t, "another master", func() bool { is := masterOf(replicas); return is != "" && is != was })
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the cell had no other master for %v", took)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}
