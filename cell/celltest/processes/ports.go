package processes

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// portsOfCell is how many ports chubbyd dev has from its base port on.
const portsOfCell = 30

// FreePorts returns the first of that many TCP ports in a row, at most 1000, that are free
// on 127.0.0.1 now. They are below those from which systems take the local ends of
// connections. Nothing keeps other programs from taking them.
func FreePorts(t testing.TB, number int) int {
	t.Helper()
	const first, end, tries = 20000, 32000, 1000
	for range tries {
		base := first + rand.IntN(end-first-number) // other tests look for ports, too
		if areFree(base, number) {
			return base
		}
	}
	t.Fatalf("no %d free ports in a row", number)
	return 0
}

func areFree(base, number int) bool {
	var open []net.Listener
	defer func() {
		for _, l := range open {
			_ = l.Close() // nobody has connected
		}
	}()
	for i := range number {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+i))
		if err != nil {
			return false
		}
		open = append(open, l)
	}
	return true
}
