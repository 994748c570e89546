package frames

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// rude is an end of a connection that follows no rules.
type rude struct {
	t    *testing.T
	conn net.Conn
}

// greet says hello, and reads the other end's.
func (r *rude) greet() {
	read := make(chan error, 1)
	go func() {
		_, err := readHello(r.conn)
		read <- err
	}()
	_, err := r.conn.Write(hello{calls: hostCalls, length: hostRequest}.append(nil))
	if err := errors.Join(err, <-read); err != nil {
		r.t.Error(err)
	}
}

// request returns a frame that asks for something.
func request(number uint64, q *pb.SimpleRequest) []byte {
	b := appendRequest(Header{Kind: KindRequest}.Append(nil), pb.TestService_UnaryCall_FullMethodName, 0)
	b, _ = proto.MarshalOptions{}.MarshalAppend(b, q)
	seal(b, number)
	return b
}

// attack runs a test in virtual time against a host, with a peer that has said hello.
func attack(t *testing.T, test func(t *testing.T, h *host, r *rude)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		ours, theirs := net.Pipe()
		h.server.Take(&buffered{Conn: theirs, reader: bufio.NewReader(theirs)})
		r := &rude{t: t, conn: ours}
		r.greet()
		test(t, h, r)
		_ = ours.Close()
		synctest.Wait()
		if h.server.mu.Lock(); len(h.server.conns) > 0 {
			t.Error("the connection is served on")
		}
		h.server.mu.Unlock()
	})
}

// ends returns how long the server leaves the connection open; what it sends is read.
func (r *rude) ends() time.Duration {
	began := time.Now()
	defer time.AfterFunc(time.Hour, func() { _ = r.conn.Close() }).Stop()
	_, _ = io.Copy(io.Discard, r.conn)
	return time.Since(began)
}

// A frame that no client sends ends the connection at once; one that a later client may send does not.
func TestViolations(t *testing.T) {
	huge := Header{Kind: KindRequest, Call: 1, Length: 1 << 31}.Append(nil)
	for name, sent := range map[string][]byte{
		"a huge request":          huge,
		"a huge frame":            Header{Kind: 77, Length: 1 << 30}.Append(nil),
		"a number that was used":  append(request(7, waits()), request(7, waits())...),
		"a number that was lower": append(request(7, waits()), request(6, waits())...),
	} {
		t.Run(name, func(t *testing.T) {
			attack(t, func(t *testing.T, _ *host, r *rude) {
				go func() { _, _ = r.conn.Write(sent) }()
				if took := r.ends(); took > 0 {
					t.Errorf("the connection was closed after %v", took)
				}
			})
		})
	}
	for name, sent := range map[string][]byte{
		"another kind":         append(Header{Kind: 77, Length: 3, Call: 1}.Append(nil), 1, 2, 3),
		"a cancel of no call":  Header{Kind: KindCancel, Call: 99}.Append(nil),
		"no method":            Header{Kind: KindRequest, Call: 1}.Append(nil),
		"a method that is cut": append(Header{Kind: KindRequest, Call: 1, Length: 2}.Append(nil), 200, 'x'),
		"a long request":       append(Header{Kind: KindRequest, Call: 1, Length: 2 * hostRequest}.Append(nil), make([]byte, 2*hostRequest)...),
	} {
		t.Run(name, func(t *testing.T) {
			attack(t, func(t *testing.T, _ *host, r *rude) {
				go func() { _, _ = r.conn.Write(append(sent, request(100, &pb.SimpleRequest{})...)) }()
				for {
					var head [HeaderSize]byte
					h := must(readHeader(r.conn, &head))(t)
					must(io.CopyN(io.Discard, r.conn, int64(h.Length)))(t)
					if h.Call == 100 && h.Kind == KindLast {
						return
					}
				}
			})
		})
	}
}

// A peer that begins something and says no more is found out by pings.
func TestHalfFrames(t *testing.T) {
	whole := request(1, &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, 10)}})
	for _, n := range []int{0, 1, HeaderSize - 1, HeaderSize, len(whole) - 1} {
		attack(t, func(t *testing.T, _ *host, r *rude) {
			go func() { _, _ = r.conn.Write(whole[:n]) }()
			times := hostTimes()
			if took, want := r.ends(), times.Ping+times.Timeout; took != want {
				t.Errorf("after %d bytes the connection was closed after %v, want %v", n, took, want)
			}
		})
	}
}

// More calls than the server takes end the connection, whether or not their client reads
// the answers.
func TestTooManyCalls(t *testing.T) {
	for name, q := range map[string]*pb.SimpleRequest{"that wait": waits(), "that are answered": {}} {
		attack(t, func(t *testing.T, h *host, r *rude) {
			sent := 0
			for ; sent < 10*hostCalls; sent++ {
				if _, err := r.conn.Write(request(uint64(sent+1), q)); err != nil {
					break
				}
				synctest.Wait()
			}
			// One write takes what was answered until then.
			if sent < hostCalls || sent > 2*hostCalls {
				t.Errorf("%s: %d calls were read", name, sent)
			}
			if n := len(h.entered); n > 2*hostCalls {
				t.Errorf("%s: %d handlers ran", name, n)
			}
		})
	}
}

// Calls that are cancelled at once do not pile up.
func TestCancelledAtOnce(t *testing.T) {
	attack(t, func(t *testing.T, h *host, r *rude) {
		go func() { _, _ = io.Copy(io.Discard, r.conn) }()
		for i := range 20 * hostCalls {
			sent := append(request(uint64(i+1), waits()), Header{Kind: KindCancel, Call: uint64(i + 1)}.Append(nil)...)
			if _, err := r.conn.Write(sent); err != nil {
				t.Fatalf("after %d calls: %v", i, err)
			}
			for len(h.entered) > 0 {
				<-h.entered
			}
		}
		synctest.Wait()
		if h.server.mu.Lock(); len(h.server.conns) != 1 {
			t.Error("the connection was closed")
		}
		for c := range h.server.conns {
			if len(c.calls) > 0 || len(c.running) > 0 {
				t.Errorf("%d calls are open, and %d handlers run", len(c.calls), len(c.running))
			}
		}
		h.server.mu.Unlock()
	})
}

// A peer that takes nothing is closed, however much it says; what it is owed meanwhile is
// bounded.
func TestTakesNothing(t *testing.T) {
	attack(t, func(t *testing.T, h *host, r *rude) {
		must(r.conn.Write(request(1, &pb.SimpleRequest{ResponseSize: 10})))(t)
		ping, sent := Header{Kind: KindPing, Call: 5}.Append(nil), 0
		began := time.Now()
		for ; time.Since(began) < time.Minute; sent++ {
			if _, err := r.conn.Write(ping); err != nil {
				break
			}
			if sent%100 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			if owed := h.owes(); owed > 2*maxChunk {
				t.Fatalf("%d bytes wait after %d pings", owed, sent)
			}
		}
		times := hostTimes()
		if took, most := time.Since(began), 2*(times.Ping+times.Timeout); took > most {
			t.Errorf("the connection was closed after %v", took)
		}
		if sent < 1000 {
			t.Errorf("%d pings were read", sent)
		}
	})
}

// owes returns how many bytes wait to be written.
func (h *host) owes() (sum uint64) {
	h.server.mu.Lock()
	defer h.server.mu.Unlock()
	for c := range h.server.conns {
		sum += c.out.backlog()
	}
	return sum
}

// A client notices a server that is stopped, as the server notices a client: both are silent.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		peer := &rude{t: t, conn: theirs}
		go peer.greet()
		l, stub := linked(t, ours)
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := stub.UnaryCall(ctx, &pb.SimpleRequest{})
		if took := time.Since(began); took != 15*time.Second || err == nil {
			t.Errorf("after %v: %v", took, err)
		}
		_ = theirs.Close()
		l.Wait()
	})
}

// A server that answers more than a client reads, or what the client has not asked for, costs
// the client little.
func TestRudeServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		peer := &rude{t: t, conn: theirs}
		go peer.greet()
		_, stub := linked(t, ours)
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		stream, err := stub.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
		if err != nil {
			t.Fatal(err)
		}
		reply, _ := proto.Marshal(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, 50<<10)}})
		frame := append(Header{Kind: KindReply, Call: 1, Length: len(reply)}.Append(nil), reply...)
		for _, b := range [][]byte{Header{Kind: KindLast, Call: 9}.Append(nil), Header{Kind: KindStatus, Call: 0}.Append(nil)} {
			if _, err := theirs.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		for range 200 {
			if _, err := theirs.Write(frame); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for err = nil; err == nil; n++ {
			_, err = stream.Recv()
		}
		if n > maxUnread/(50<<10)+3 || status.Convert(err).Message() == "" {
			t.Errorf("%d replies were kept, and then: %v", n, err)
		}
		_ = theirs.Close()
	})
}

// A server that leaves says which calls it has taken: the others may be made elsewhere.
func TestLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		peer := &rude{t: t, conn: theirs}
		go peer.greet()
		l, stub := linked(t, ours)
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := stub.UnaryCall(t.Context(), &pb.SimpleRequest{})
				results <- err
			}()
			synctest.Wait()
		}
		must(theirs.Write(Header{Kind: KindLeave, Call: 1}.Append(nil)))(t)
		var unsent *NotSentError
		if err := <-results; !errors.As(err, &unsent) {
			t.Errorf("a call that the server did not take: %v", err)
		}
		synctest.Wait()
		if len(results) > 0 {
			t.Errorf("a call that the server took: %v", <-results)
		}
		must(theirs.Write(Header{Kind: KindLast, Call: 1}.Append(nil)))(t)
		if err := <-results; err != nil {
			t.Errorf("a call that was answered: %v", err)
		}
		l.Wait()
	})
}

// Handlers that run on although their calls were given up keep further ones from being run.
func TestStubbornHandlers(t *testing.T) {
	attack(t, func(t *testing.T, h *host, r *rude) {
		h.deaf = true
		go func() {
			for i := range 3 * hostCalls {
				sent := append(request(uint64(i+1), waits()), Header{Kind: KindCancel, Call: uint64(i + 1)}.Append(nil)...)
				if _, err := r.conn.Write(sent); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if n := len(h.entered); n != hostCalls {
			t.Errorf("%d handlers run; at most %d may", n, hostCalls)
		}
		close(h.leave)
		_ = r.conn.Close()
	})
}

// FuzzServer sends anything to a server.
func FuzzServer(f *testing.F) {
	f.Add(request(1, &pb.SimpleRequest{ResponseSize: 3}))
	f.Add(append(request(1, waits()), Header{Kind: KindCancel, Call: 1}.Append(nil)...))
	f.Add(binary.BigEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, sent []byte) {
		attack(t, func(t *testing.T, _ *host, r *rude) {
			go func() { _, _ = io.Copy(io.Discard, r.conn) }()
			_, _ = r.conn.Write(sent)
			synctest.Wait()
		})
	})
}

// FuzzLink sends anything to a client that waits for the answers to its first two calls.
func FuzzLink(f *testing.F) {
	reply, _ := proto.Marshal(&pb.SimpleResponse{Payload: &pb.Payload{Body: []byte("x")}})
	f.Add(append(Header{Kind: KindLast, Call: 1, Length: len(reply)}.Append(nil), reply...))
	f.Add(append(Header{Kind: KindStatus, Call: 2, Length: 2}.Append(nil), 8, 5))
	f.Add(Header{Kind: KindLeave, Call: 1}.Append(nil))
	f.Fuzz(func(t *testing.T, sent []byte) {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			peer := &rude{t: t, conn: theirs}
			go peer.greet()
			l, stub := linked(t, ours)
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			go func() { _, _ = stub.UnaryCall(t.Context(), &pb.SimpleRequest{}) }()
			synctest.Wait()
			go func() { _, _ = streamed(t.Context(), stub, nil) }()
			synctest.Wait()
			_, _ = theirs.Write(sent)
			synctest.Wait()
			_ = theirs.Close()
			l.Wait()
			if len(l.calls) > 0 || len(l.slots) > 0 {
				t.Errorf("%d calls are open, %d in flight", len(l.calls), len(l.slots))
			}
		})
	})
}
