package memnet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// onWire runs a test in a bubble with a connection from host a to host b.
func onWire(t *testing.T, slow time.Duration, test func(n *Network, a, b net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		n.delays["a"] = slow
		l := n.Listen("b:1")
		defer l.Close()
		accepted := make(chan net.Conn)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- conn
		}()
		a, err := n.Dial(t.Context(), "a", "b:1")
		if err != nil {
			t.Fatal(err)
		}
		b := <-accepted
		defer a.Close()
		defer b.Close()
		test(n, a, b)
	})
}

// reads returns what arrives, as it arrives, with when it did.
func reads(conn net.Conn) <-chan string {
	began, arrived := time.Now(), make(chan string, 100)
	go func() {
		defer close(arrived)
		for {
			b := make([]byte, 100)
			n, err := conn.Read(b)
			if n > 0 {
				arrived <- fmt.Sprintf("%s@%v", b[:n], time.Since(began))
			}
			if err != nil {
				if errors.Is(err, io.EOF) {
					arrived <- fmt.Sprintf("EOF@%v", time.Since(began))
				}
				return
			}
		}
	}()
	return arrived
}

func write(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Errorf("write %q: %v", text, err)
	}
}

func arrives(t *testing.T, from <-chan string, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := <-from; got != w {
			t.Errorf("%q arrived, want %q", got, w)
		}
	}
}

// After a failed write to a connection that the other end has closed, a read ends at once, however
// slow the connection is.
func TestWriteToAClosedConnection(t *testing.T) {
	onWire(t, time.Second, func(_ *Network, a, b net.Conn) {
		began, ended := time.Now(), make(chan time.Duration)
		go func() {
			_, _ = a.Read(make([]byte, 100)) // only its end matters
			ended <- time.Since(began)
		}()
		_ = b.Close()
		synctest.Wait()
		if _, err := io.WriteString(a, "1"); err == nil {
			t.Error("no error")
		}
		if took := <-ended; took != 0 {
			t.Errorf("a read ended after %v", took)
		}
	})
}

// What a paused host sends, or is sent, arrives when it resumes, in order; so
// does the end of a connection. The sender does not notice.
func TestPausedConnection(t *testing.T) {
	for _, host := range []string{"a", "b"} {
		t.Run(host, func(t *testing.T) {
			onWire(t, 0, func(n *Network, a, b net.Conn) {
				atA, atB := reads(a), reads(b)
				write(t, a, "1")
				arrives(t, atB, "1@0s")
				n.Pause(host, true)
				write(t, a, "2")
				write(t, b, "3")
				time.Sleep(time.Second)
				write(t, a, "4")
				_ = a.Close()
				write(t, b, "5")
				time.Sleep(time.Second)
				n.Pause(host, false)
				arrives(t, atB, "24@2s", "EOF@2s")
				if got, more := <-atA; more {
					t.Errorf("%q arrived on a closed connection", got)
				}
				if _, err := io.WriteString(b, "6"); err == nil {
					t.Error("after the pause a write to a connection that the other end closed succeeds")
				}
				if len(n.conns) != 0 {
					t.Errorf("%d closed connections are kept", len(n.conns))
				}
			})
		})
	}
}

// What was under way to a slow host when it was paused does not arrive in the
// pause.
func TestPausedOnItsWay(t *testing.T) {
	onWire(t, time.Second, func(n *Network, a, b net.Conn) {
		atA := reads(a)
		write(t, b, "late")
		time.Sleep(time.Second / 2)
		n.Pause("a", true)
		time.Sleep(time.Minute)
		n.Pause("a", false)
		arrives(t, atA, "late@1m0.5s")
	})
}

// A connection with a paused host can be opened, and carries nothing.
func TestPausedFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		l := n.Listen("b:1")
		defer l.Close()
		n.Pause("b", true)
		arrived := make(chan string, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				t.Error(err)
			}
			defer conn.Close()
			arrived <- <-reads(conn)
		}()
		a, err := n.Dial(t.Context(), "a", "b:1")
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		write(t, a, "hello")
		time.Sleep(time.Minute)
		n.Pause("b", false)
		arrives(t, arrived, "hello@1m0s")
	})
}
