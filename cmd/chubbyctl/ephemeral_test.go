package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// The file of put --ephemeral lives as long as the command. The command ends if the file is deleted, or
// its session has ended.
func TestEphemeralFileIsGone(t *testing.T) {
	for name, remove := range map[string]func(ctx context.Context, c *client.Client, file *client.Handle) error{
		"deleted": func(ctx context.Context, _ *client.Client, file *client.Handle) error { return file.Delete(ctx) },
		"ended": func(ctx context.Context, c *client.Client, _ *client.Handle) error {
			for s, err := range c.Cell().EachSession(ctx) {
				if err != nil {
					return err
				}
				if s.Session != c.Session() {
					return c.EndSession(ctx, s.Session, "a drill")
				}
			}
			return errors.New("the command has no session")
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			cell := celltest.Start(t, 1)
			root, g := newRootCommand()
			g.adapt = func(cfg *client.Config) { cfg.Dialer, cfg.Clock = cell.Dial, celltest.Clock }
			root.SetArgs([]string{"--servers", strings.Join(cell.Servers(), ","), "put", "/ls/local/here", "up", "--ephemeral"})
			var printed buffer
			root.SetOut(&printed)
			root.SetErr(&printed)
			left := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { left <- root.ExecuteContext(ctx) }()
			time.Sleep(time.Second)
			c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close(ctx) }()
			file, err := c.Open(t.Context(), "/ls/local/here", client.OpenOptions{Write: true, Kind: api.File})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(remove(ctx, c, file), c.Close(ctx)); err != nil {
				t.Error(err)
			}
			select {
			case err := <-left:
				if exitCode(err) != exitFailed || !strings.Contains(err.Error(), name) {
					t.Errorf("%s: it left with %d: %v", name, exitCode(err), err)
				}
			case <-time.After(time.Minute):
				t.Errorf("%s: it stays without its file", name)
				cancel()
				<-left
			}
		})
	}
}
