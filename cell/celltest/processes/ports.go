package processes

import (
	"testing"

	"github.com/chubbylock/chubby/internal/ports"
)

// FreePorts returns the first of that many TCP ports in a row, at most 31, that are free
// on 127.0.0.1, and that no other test of this machine, in whatever process, gets from
// here until t ends. They are below those from which systems take the local ends of
// connections. Nothing keeps programs that do not ask here from taking them.
func FreePorts(t testing.TB, number int) int {
	t.Helper()
	if number < 1 || number > ports.Most {
		t.Fatalf("FreePorts of %d: 1 to %d are possible", number, ports.Most)
	}
	r, err := ports.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r.Base()
}
