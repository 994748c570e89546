package main

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// runOver runs one command line over a network.
func runOver(t *testing.T, c *celltest.Cell, dial func(context.Context, string) (net.Conn, error), line, stdin string) (printed string, code int) {
	t.Helper()
	var out buffer
	root, g := newRootCommand()
	g.adapt = func(cfg *client.Config) { cfg.Dialer, cfg.Clock = dial, celltest.Clock }
	root.SetArgs(append([]string{"--servers", strings.Join(c.Servers(), ",")}, split(t, line)...))
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	if err != nil {
		g.printError(&out, err)
	}
	return out.String(), exitCode(err)
}

// That the cell cannot be reached says that nothing was changed, of a command that changes several nodes, too: wherever the network ends.
func TestUnavailableSaysThatNothingWasChanged(t *testing.T) {
	const exported = `{"chubby_export":1}
{"path":"","kind":"directory"}
{"path":"a","kind":"file","contents":"1","acl":{"read":"l","write":"l","change":"l"}}
{"path":"b","kind":"file","contents":"1"}
{"end":true,"nodes":3}
`
	for line, last := range map[string]string{ // and the calls after one of which the network ends
		"rm /ls/local/t/a /ls/local/t/b":       "/Delete",
		"rm -r /ls/local/t --yes":              "/Delete",
		"touch /ls/local/t/d /ls/local/t/e":    "/Open",
		"mkdir /ls/local/t/d /ls/local/t/e":    "/Open",
		"mkdir -p /ls/local/x/y /ls/local/x/z": "/Open",
		"cp -r /ls/local/t /ls/local/copy":     "/Open",
		"import --acl /ls/local/imported":      "/Open",
	} {
		t.Run(line, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := celltest.Start(t, 1)
				author := c.Client("author", func(cfg *client.Config) { cfg.NoCache = true })
				put := func(path, text string) {
					if _, err := author.Put(t.Context(), path, []byte(text)); err != nil {
						t.Fatal(err)
					}
				}
				if err := author.MkdirAll(t.Context(), "/ls/local/t"); err != nil {
					t.Fatal(err)
				}
				put("/ls/local/acl/l", "*\n")
				for _, name := range []string{"a", "b", "c"} {
					put("/ls/local/t/"+name, "1")
				}
				before, changed := countNodes(t, author, "/ls/local"), false
				for nth := int64(1); nth < 12; nth++ {
					var answers atomic.Int64
					printed, code := runOver(t, c, c.Lossy("client", func(method string) bool {
						if strings.HasSuffix(method, last) && answers.Add(1) == nth {
							c.Cut("client") // this answer has come
						}
						return false
					}), line, exported)
					c.Heal("client")
					after := countNodes(t, author, "/ls/local")
					if after != before && code == exitUnavailable {
						t.Errorf("exit code %d, and of %d nodes there are %d after %d answers: %s", code, before, after, nth, printed)
					}
					changed = changed || after != before
					before = after
				}
				if !changed {
					t.Error("it has changed nothing")
				}
			})
		})
	}
}

// countNodes returns how many nodes are below a directory.
func countNodes(t *testing.T, c *client.Client, dir string) (n int) {
	list, err := c.List(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		n++
		if s.Kind == api.Directory {
			n += countNodes(t, c, s.Path.String())
		}
	}
	return n
}
