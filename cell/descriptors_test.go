package cell

import "testing"

// Clients' connections leave a replica the file descriptors that it needs itself.
func TestConnectionsLeaveDescriptors(t *testing.T) {
	for _, test := range []struct {
		wanted int
		limit  uint64
		want   int
	}{{20_000, 1 << 30, 20_000}, {20_000, 4096, 4096 - ownDescriptors}, {20_000, 1024, 256}, {20_000, 256, 64}, {100, 1024, 100}, {5, 0, 1}, {20_000, 1<<64 - 1, 20_000}} {
		if got := affordableConnections(test.wanted, test.limit); got != test.want {
			t.Errorf("of %d connections with %d descriptors: %d, want %d", test.wanted, test.limit, got, test.want)
		}
	}
}
