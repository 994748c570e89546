package main

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Who gives up at a barrier while the cell does not answer is not told that fewer have come: he may have been counted.
func TestBarrierWithoutAnAnswer(t *testing.T) {
	for what, want := range map[string]int{"--wait": exitWaited, "a signal": 130} {
		synctest.Test(t, func(t *testing.T) {
			cell := celltest.Start(t, 1)
			ctx, interrupt := context.WithCancelCause(t.Context())
			defer interrupt(nil)
			args := []string{"--servers", strings.Join(cell.Servers(), ","), "barrier", "rollout", "--parties", "2"}
			if want == exitWaited {
				args = append(args, "--wait", "5s")
			} else {
				time.AfterFunc(5*time.Second, func() { interrupt(interrupted{os.Interrupt}) })
			}
			time.AfterFunc(3*time.Second, func() { cell.Cut("web1") })
			root, g := newRootCommand()
			g.adapt = func(cfg *client.Config) { cfg.Dialer, cfg.Clock = cell.DialFrom("web1"), cell.ClockOf("web1") }
			root.SetArgs(args)
			root.SetOut(io.Discard)
			root.SetErr(io.Discard)
			err := lastError(ctx, root.ExecuteContext(ctx))
			if exitCode(err) != want || !strings.Contains(err.Error(), "may have been counted") || strings.Contains(err.Error(), "fewer than") {
				t.Errorf("%s: %v (exit code %d), want %d", what, err, exitCode(err), want)
			}
		})
	}
}
