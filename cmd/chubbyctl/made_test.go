package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A node that was created is reported as created, also if the cell does not answer the question for its metadata.
func TestMadeAndNotShown(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		said string
	}{
		{"put /ls/local/new text", 0, ""},
		{"put /ls/local/new text --if-generation 0", 0, ""},
		{"mkdir /ls/local/new", 0, ""},
		{"mkdir -p /ls/local/new/newer", 0, ""},
		{"touch /ls/local/new", 0, ""},
		{"-o json put /ls/local/new text", 1, "wrote /ls/local/new, but"},
		{"-v mkdir /ls/local/new", 1, "created /ls/local/new, but"},
		{"-o json touch /ls/local/new", 1, "there is /ls/local/new, but"},
	} {
		synctest.Test(t, func(t *testing.T) {
			cell := celltest.Start(t, 1)
			lossy := cell.Lossy("web1", func(method string) bool { return strings.HasSuffix(method, "/GetStat") })
			root, g := newRootCommand()
			g.adapt = func(cfg *client.Config) { cfg.Dialer, cfg.Clock = lossy, celltest.Clock }
			root.SetArgs(append([]string{"--servers", strings.Join(cell.Servers(), ","), "--timeout", "3s"}, strings.Fields(c.args)...))
			var printed buffer
			root.SetIn(strings.NewReader(""))
			root.SetOut(&printed)
			root.SetErr(&printed)
			err := root.ExecuteContext(t.Context())
			if code := exitCode(err); code != c.code || err != nil && !strings.Contains(err.Error(), c.said) {
				t.Errorf("%s: exit code %d (%v), want %d with %q", c.args, code, err, c.code, c.said)
			}
			if !there(t, cell) {
				t.Errorf("%s: it was not made", c.args)
			}
		})
	}
}

// there reports whether there is a node /ls/local/new.
func there(t *testing.T, cell *celltest.Cell) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	session, err := client.New(ctx, client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close(ctx) }()
	_, err = session.Open(ctx, "/ls/local/new", client.OpenOptions{Read: true})
	return err == nil
}
