package client

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

// A replica that is configured by another address than it names itself by is one
// replica: calls to a master that is only slow are not taken from it because it is
// found again by its other address.
func TestSlowMasterOfTwoAddresses(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Servers = []string{"also-a:1", "also-b:1", "also-c:1"}
		cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			return f.dial(ctx, strings.TrimPrefix(address, "also-"))
		}
		c := f.client(cfg)
		h := lockable(t, c, 0)
		f.script(func(s seen) verb {
			if s.method == "SetContents" {
				return after(4 * time.Second)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := h.SetContents(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := h.SetContents(ctx, nil); err != nil || len(f.heard("SetContents")) > 4 {
			t.Errorf("%v; two writes were sent %d times", err, len(f.heard("SetContents")))
		}
		closeClient(t, c)
	})
}
