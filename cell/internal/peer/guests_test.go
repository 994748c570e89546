package peer

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/memnet"
)

// A replica speaks for somebody at another one, which is told who that is and where, and what he says. Connections for guests are
// bounded, and one that has ended makes room.
func TestGuests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := memnet.New()
		arrived := make(chan net.Conn, 2*maxGuests)
		var told Guest
		called, _ := newTestPort(wire, "foo", "r1", func(cfg *PortConfig) {
			cfg.Guest = func(conn net.Conn, who Guest) {
				told = who
				arrived <- conn
			}
		})
		defer called.close()
		caller, _ := newTestPort(wire, "foo", "r2")
		defer caller.close()
		who := Guest{Principal: "spiffe://example.org/ops", Address: "192.0.2.7:50000"}
		conn, err := caller.Visit("r1", "r1", who, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		theirs := <-arrived
		if told != who {
			t.Errorf("the guest is %+v, and not %+v", told, who)
		}
		go func() { _, _ = conn.Write([]byte("hello")) }()
		words := make([]byte, 5)
		if _, err := io.ReadFull(theirs, words); err != nil || string(words) != "hello" {
			t.Errorf("he says %q, %v", words, err)
		}
		for range maxGuests - 1 {
			if _, err := caller.Visit("r1", "r1", who, time.Second); err != nil {
				t.Fatal(err)
			}
			<-arrived
		}
		if _, err := caller.Visit("r1", "r1", who, time.Second); err == nil {
			t.Fatal("one more guest than there is room for is taken")
		}
		_ = theirs.Close()
		if _, err := caller.Visit("r1", "r1", who, time.Second); err != nil {
			t.Errorf("a guest has gone, and the next one is refused: %v", err)
		}
		long := Guest{Principal: string(make([]byte, maxIntroduced))}
		if _, err := caller.Visit("r1", "r1", long, time.Second); err == nil {
			t.Error("a guest with an endless name is taken")
		}
	})
}
