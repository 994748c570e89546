package celltest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/internal/frames"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Lossy returns a Dial, as DialFrom does, for a client whose replies may get
// lost: the replica has done what was asked, and the client sees that there was
// no answer. It imitates a connection, or a master, that fails between the
// request and the reply. An application may notice a call that takes longer:
// the client asks again and gets the answer to what was done once.
//
// lose is called for each reply, concurrently, with the full method, such as
// /chubby.v1.Chubby/SetContents. If it returns true, the reply is lost.
func (c *Cell) Lossy(host string, lose func(method string) bool) func(context.Context, string) (net.Conn, error) {
	dial := c.DialFrom(host)
	p := &proxy{lose: lose}
	c.t.Cleanup(p.close)
	return func(ctx context.Context, address string) (net.Conn, error) {
		behind, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}
		client, front := memnet.Pipe(host, address)
		if !p.forward(&forwarded{front: front, behind: behind, lose: lose, methods: map[uint64]string{}}) {
			_ = behind.Close() // nobody has it
			return nil, memnet.ErrRefused
		}
		return client, nil
	}
}

// proxy has the connections of a client that pass through it.
type proxy struct {
	lose    func(method string) bool
	running sync.WaitGroup // Add only under mu, and not after closed

	mu     sync.Mutex // guards what follows
	conns  []*forwarded
	closed bool
}

// forward begins to forward a connection, unless the proxy is closed.
func (p *proxy) forward(f *forwarded) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns = append(p.conns, f)
	for _, direction := range []func() error{f.requests, f.replies} {
		p.running.Go(func() {
			_ = direction() // it ends when either side ends, or breaks the rules
			f.close()
		})
	}
	return true
}

// close breaks all connections.
func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	for _, f := range p.conns {
		f.close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// forwarded is one connection: what is between a client and a replica. It passes frames on,
// except for replies that are lost.
type forwarded struct {
	front, behind net.Conn
	lose          func(method string) bool
	sending       sync.Mutex // is held while something is sent to the replica

	mu      sync.Mutex // guards what follows
	methods map[uint64]string
}

func (f *forwarded) close() {
	_ = f.front.Close()  // whatever the error, nothing passes it any more
	_ = f.behind.Close() // as above
}

// requests forwards what the client sends.
func (f *forwarded) requests() error {
	return passFrames(f.front, func(h frames.Header, frame []byte) error {
		if method, ok := frames.MethodOf(frame[frames.HeaderSize:]); ok && h.Kind == frames.KindRequest {
			f.mu.Lock()
			f.methods[h.Call] = method
			f.mu.Unlock()
		}
		return f.send(frame)
	}, f.send)
}

// send sends to the replica.
func (f *forwarded) send(b []byte) error {
	f.sending.Lock()
	defer f.sending.Unlock()
	_, err := f.behind.Write(b)
	return err
}

// replies forwards what the replica sends, or in place of a reply that it is lost: then the
// call has ended at both ends.
func (f *forwarded) replies() error {
	answer := func(b []byte) error {
		_, err := f.front.Write(b)
		return err
	}
	return passFrames(f.behind, func(h frames.Header, frame []byte) error {
		if h.Kind != frames.KindReply && h.Kind != frames.KindLast && h.Kind != frames.KindStatus {
			return answer(frame)
		}
		f.mu.Lock()
		method, open := f.methods[h.Call]
		f.mu.Unlock()
		if !open {
			return nil // it was lost before
		}
		// A call that succeeds after its replies has none that could be lost.
		lost := (h.Kind != frames.KindStatus || h.Length > 0) && f.lose(method)
		if lost || h.Kind != frames.KindReply {
			f.mu.Lock()
			delete(f.methods, h.Call)
			f.mu.Unlock()
		}
		if !lost {
			return answer(frame)
		}
		cancel := frames.Header{Kind: frames.KindCancel, Call: h.Call}.Append(nil)
		return errors.Join(answer(frames.AppendStatus(nil, h.Call, status.Error(codes.Unavailable, "the reply was lost"))), f.send(cancel))
	}, answer)
}

// passFrames reads a hello, which it hands to first, and then frames, each of which it hands
// to each, until the connection ends.
func passFrames(from io.Reader, each func(frames.Header, []byte) error, first func([]byte) error) error {
	r := bufio.NewReader(from)
	hello := make([]byte, frames.HelloSize)
	if _, err := io.ReadFull(r, hello); err != nil {
		return err
	}
	err := first(hello)
	for err == nil {
		var head [frames.HeaderSize]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		h := frames.ParseHeader(&head)
		frame := append(head[:], make([]byte, h.Length)...)
		if _, err := io.ReadFull(r, frame[frames.HeaderSize:]); err != nil {
			return err
		}
		err = each(h, frame)
	}
	return err
}
