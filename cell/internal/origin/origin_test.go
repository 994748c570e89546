package origin

import "testing"

func TestOf(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.5:7421": "10.0.0.5", "[::ffff:10.0.0.5]:1": "10.0.0.5", "127.0.0.1:5": "127.0.0.1", "[::1]:5": "::1",
		"[2001:db8::5]:7": "2001:db8::/64", "[2001:db8::6:0:0:1]:7": "2001:db8::/64", "[fe80::1%eth0]:7": "fe80::/64", "host:5": "host", "bufconn": "bufconn",
	} {
		if got := Of(address); got != want {
			t.Errorf("a connection from %s counts as one from %s, want %s", address, got, want)
		}
	}
}
