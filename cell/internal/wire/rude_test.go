package wire

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/session"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
)

// rude is a client that follows no rules but those of HTTP/2.
type rude struct {
	*http2.Framer
	t    *testing.T
	conn net.Conn
	next uint32
}

func newRude(t *testing.T, conn net.Conn, settings ...http2.Setting) *rude {
	t.Helper()
	r := &rude{Framer: http2.NewFramer(conn, conn), t: t, conn: conn, next: 1}
	r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	testbed.NoErr(t, testbed.ErrOf(io.WriteString(conn, http2.ClientPreface)))
	testbed.NoErr(t, r.WriteSettings(settings...))
	return r
}

// begin sends the headers of a call.
func (r *rude) begin(method string) uint32 {
	r.t.Helper()
	stream, err := r.tryBegin(method)
	if err != nil {
		r.t.Fatal(err)
	}
	return stream
}

// tryBegin is begin on a connection that may be closed.
func (r *rude) tryBegin(method string) (uint32, error) {
	r.t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "cell"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			r.t.Fatal(err)
		}
	}
	stream := r.next
	r.next += 2
	return stream, r.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
}

// send sends a part of a call's request.
func (r *rude) send(stream uint32, data []byte, end bool) error {
	for len(data) > 16<<10 {
		if err := r.WriteData(stream, false, data[:16<<10]); err != nil {
			return err
		}
		data = data[16<<10:]
	}
	return r.WriteData(stream, end, data)
}

// status returns how a call ended, or its first reply.
func (r *rude) status(stream uint32) string {
	r.t.Helper()
	for {
		f, err := r.ReadFrame()
		if err != nil {
			r.t.Fatal(err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamID == stream {
			for _, field := range h.RegularFields() {
				if field.Name == "grpc-status" {
					return field.Value
				}
			}
		}
	}
}

// host serves calls without a cell.
type host struct {
	pb.UnimplementedChubbyServer
	contents []byte        // the contents of every file
	leave    chan struct{} // changes wait for it
	told     chan error    // why waiters for a lock got no more messages
}

func (h *host) GetContentsAndStat(context.Context, *pb.GetContentsAndStatRequest) (*pb.GetContentsAndStatReply, error) {
	return &pb.GetContentsAndStatReply{Contents: h.contents}, nil
}

func (h *host) SetContents(context.Context, *pb.SetContentsRequest) (*pb.SetContentsReply, error) {
	<-h.leave
	return &pb.SetContentsReply{}, nil
}

func (h *host) Acquire(_ *pb.AcquireRequest, stream grpc.ServerStreamingServer[pb.AcquireReply]) error {
	for {
		if err := stream.Send(&pb.AcquireReply{Answer: &pb.AcquireReply_Granted{Granted: &pb.Granted{Sequencer: strings.Repeat("x", 1000)}}}); err != nil {
			h.told <- err
			return err
		}
	}
}

func newHeld(limits heldLimits) *Connections {
	c := NewConnections(Bounds{Connections: 100, PerAddress: 100}, untold(), slog.New(slog.DiscardHandler))
	c.limits = limits
	return c
}

// serve serves calls as a replica does, until the test ends.
func (h *host) serve(t *testing.T, l net.Listener, limits heldLimits) *Connections {
	t.Helper()
	return h.serveOn(t, l, newHeld(limits), testbed.Clock())
}

// serveOn is serve for connections of the caller's.
func (h *host) serveOn(t *testing.T, l net.Listener, conns *Connections, clock session.Clock) *Connections {
	t.Helper()
	serveOn(t, newService(Config{Logger: slog.New(slog.DiscardHandler)}), h, l, conns, clock)
	return conns
}

// serveOn has handlers serve the calls that come to a listener, until the test ends.
func serveOn(t *testing.T, s *service, h pb.ChubbyServer, l net.Listener, conns *Connections, clock session.Clock) {
	t.Helper()
	server := newServer(s, func(r grpc.ServiceRegistrar) { pb.RegisterChubbyServer(r, h) })
	done := make(chan error, 1)
	go func() { done <- server.Serve(Listener{Listener: l, Clock: clock, Connections: conns}) }()
	t.Cleanup(func() {
		server.Close()
		testbed.Report(t, <-done)
		testbed.Await(t, "handlers that end, and nothing that is counted", func() bool { // Close does not wait for handlers
			conns.mu.Lock()
			defer conns.mu.Unlock()
			return conns.bytes.Load() == 0 && len(conns.from.here) == 0
		})
	})
}

// isServing reports whether a call is being served.
func isServing(conns *Connections) bool {
	conns.mu.Lock()
	defer conns.mu.Unlock()
	var some bool
	for _, o := range conns.from.here {
		for a := range o.accounts {
			a.mu.Lock()
			for _, c := range a.calls {
				some = some || c.serving
			}
			a.mu.Unlock()
		}
	}
	return some
}

func dialled(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	conn := testbed.Must(net.Dial("tcp", l.Addr().String()))(t)
	return conn
}

// announced returns the beginning of a message of that length.
func announced(length int) []byte {
	return []byte{0, byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length)}
}
