package main

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// full is where nothing can be written.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Who cannot be told what was done learns that it was: doing it again would do it twice.
func TestDoneAndNotPrinted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, cell: celltest.Start(t, 1), ctx: t.Context()}
		for line, want := range map[string]string{
			"txn --put a=x -o json":                "the changes were made",
			"queue put films film17":               " is in the queue",
			"queue put films film18 --output=json": " is in the queue",
		} {
			root, g := newRootCommand()
			g.adapt = func(cfg *client.Config) { cfg.Dialer, cfg.Clock = s.cell.Dial, celltest.Clock }
			root.SetArgs(append([]string{"--servers", strings.Join(s.cell.Servers(), ",")}, split(t, line)...))
			root.SetOut(full{})
			root.SetErr(io.Discard)
			err := root.ExecuteContext(s.ctx)
			if exitCode(err) != exitFailed || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v (exit code %d), want %q", line, err, exitCode(err), want)
			}
		}
	})
}
