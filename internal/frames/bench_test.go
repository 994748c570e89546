package frames

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// BenchmarkCall measures a short call over TCP, of 64 clients with a connection each, and of one
// client: as frames, and over gRPC. cpu-us/op is the processor time of both ends and of the
// system for them.
func BenchmarkCall(b *testing.B) {
	for _, clients := range []int{1, 64} {
		for _, over := range []string{"frames", "grpc"} {
			b.Run(over+"/"+map[int]string{1: "one", 64: "many"}[clients], func(b *testing.B) {
				address := newHost(b).listen(b)
				conns := make([]grpc.ClientConnInterface, clients)
				for i := range conns {
					if over == "frames" {
						conns[i], _ = linked(b, dialled(b, address))
					} else {
						conns[i] = overGRPC(b, address)
					}
				}
				measure(b, conns)
			})
		}
	}
}

func overGRPC(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10),
		grpc.WithDisableServiceConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// measure makes b.N calls over some connections, one at a time over each.
func measure(b *testing.B, conns []grpc.ClientConnInterface) {
	b.Helper()
	call := func(conn grpc.ClientConnInterface) {
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		if _, err := pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, 100)}, ResponseSize: 50}); err != nil {
			b.Error(err)
		}
	}
	for _, conn := range conns {
		call(conn)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	began := processor(b)
	var running sync.WaitGroup
	for _, conn := range conns {
		running.Go(func() {
			for left.Add(-1) >= 0 {
				call(conn)
			}
		})
	}
	running.Wait()
	b.ReportMetric(float64(processor(b)-began)/float64(time.Microsecond)/float64(b.N), "cpu-us/op")
}

// processor returns the processor time that this process has taken.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
