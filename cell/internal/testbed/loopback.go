package testbed

import (
	"net"
	"testing"
)

// Loopback listens on a free port of the loopback interface.
func Loopback(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
