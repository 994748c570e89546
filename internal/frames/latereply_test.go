package frames

import (
	"net"
	"testing"

	"google.golang.org/protobuf/types/known/emptypb"
)

// A connection that ends, and a cancel, take a call from those that are open, and end its context a moment later. Whoever sends a reply in between
// has no cause.
func TestReplyWhileItsCallEnds(t *testing.T) {
	here, there := net.Pipe()
	defer func() { _ = here.Close() }()
	defer func() { _ = there.Close() }()
	c := newServerConn(NewServer(ServerConfig{MaxCalls: 10, MaxRequest: 1 << 10}), here)
	k := &serverCall{conn: c, number: 1}
	k.begin()
	defer k.cancel(nil)
	c.calls[1] = k
	c.mu.Lock()
	delete(c.calls, 1) // as serverConn.end and take do
	c.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panic: %v", p)
		}
	}()
	if err := k.SendMsg(&emptypb.Empty{}); err == nil {
		t.Error("it was sent")
	}
}
