//go:build linux

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// What is counted is divided by the time between two looks of the master: how long the connection took is no part of it.
func TestTopClockBeginsWithTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 1)
		c.Slow("client", 200*time.Millisecond)
		access, err := client.Dial(t.Context(), client.Config{Servers: c.Servers(), Dialer: c.Dial, Clock: celltest.Clock})
		if err != nil {
			t.Fatal(err)
		}
		defer access.Close()
		var look topLook
		began := time.Now()
		if err := look.take(t.Context(), access, 5); err != nil {
			t.Fatal(err)
		}
		passed, all := look.clock(), time.Since(began)
		if passed >= all-300*time.Millisecond { // to find the master, and to ask it, takes two round trips
			t.Errorf("the clock of a look says %v at its end, and all of it took %v, with the connection", passed, all)
		}
	})
}

// Ctrl-C is how top ends, also while it looks at a cell that does not answer: with 0, and without a word of trouble.
func TestTopEndsInALook(t *testing.T) {
	for _, looks := range []int{0, 1} { // before it: the first look may fail with an error of its own
		synctest.Test(t, func(t *testing.T) {
			c := celltest.Start(t, 1)
			ctx, cancel := context.WithCancel(t.Context())
			if looks == 0 {
				c.Cut("client")
			}
			root, g := newRootCommand()
			g.adapt = func(cfg *client.Config) { cfg.Dialer, cfg.Clock = c.Dial, celltest.Clock }
			var out, trouble bytes.Buffer
			root.SetOut(&out)
			root.SetErr(&trouble)
			root.SetArgs([]string{"--servers", strings.Join(c.Servers(), ","), "--timeout", "1m", "top", "--times", "5", "--every", "2s"})
			ended := make(chan error, 1)
			go func() { ended <- root.ExecuteContext(ctx) }()
			time.Sleep(time.Second)
			if looks == 1 {
				c.Cut("client")
				time.Sleep(3 * time.Second) // in the second look
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("after %d looks: %v", looks, err)
			}
			if trouble.Len() > 0 {
				t.Errorf("after %d looks: %s", looks, trouble.String())
			}
			if n := strings.Count(out.String(), "cell local"); n != looks {
				t.Errorf("%d looks were shown, want %d:\n%s", n, looks, out.String())
			}
			c.Heal("client")
		})
	}
}
