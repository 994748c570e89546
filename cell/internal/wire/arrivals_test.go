package wire

import (
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/session"
)

// However long a read has waited, the last arrival is not before the sending: the client counts its lease from there.
func TestArrivalIsNotBeforeTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := testbed.Clock()
		here, there := net.Pipe()
		conn := hear(here, Listener{Clock: clock})
		conns := NewConnections(Bounds{Connections: 10, PerAddress: 10, Memory: 1 << 30}, untold(), slog.New(slog.DiscardHandler))
		if !conns.admit(conn) {
			t.Fatal("it is refused")
		}
		sent := make(chan session.Instant, 1)
		go func() {
			testbed.Pass(time.Hour)
			sent <- clock()
			_, _ = there.Write([]byte{0})
		}()
		_, err := conn.Read(make([]byte, 1))
		testbed.NoErr(t, err)
		if at, last := <-sent, conn.LastArrival(); last < at {
			t.Errorf("it was sent after %v and arrived after %v", time.Duration(at), time.Duration(last))
		}
		testbed.NoErr(t, conn.Close())
	})
}
