package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// What was created is printed as it was created: nobody is asked for it again, who might know what another has made of it
// since, or not answer.
func TestCreatedIsPrintedWithoutAnotherCall(t *testing.T) {
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
		{"-o json put /ls/local/new text", 0, `"size":4`},
		{"-o json put /ls/local/new text --if-absent", 0, `"size":4`},
		{"-v mkdir /ls/local/new", 0, "created /ls/local/new (content generation"},
		{"-o json mkdir -p /ls/local/new", 0, `"kind":"directory"`},
		{"-o json touch /ls/local/new", 0, `"size":0`},
		{"touch /ls/local/new /ls/local/new", 0, ""},
		{"-o json touch /ls/local/new /ls/local/new", exitFailed, "there is /ls/local/new, but"},
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
			if said := printed.String() + fmt.Sprint(err); exitCode(err) != c.code || !strings.Contains(said, c.said) {
				t.Errorf("%s: exit code %d, %s; want %d with %q", c.args, exitCode(err), said, c.code, c.said)
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
