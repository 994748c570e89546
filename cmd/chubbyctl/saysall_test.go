package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// -o json says all that the text says.
func TestJSONSaysWhatTheTextSays(t *testing.T) {
	lock := client.LockInfo{Path: "/ls/local/a", Waiters: []client.Waiter{{Holder: api.Holder{Session: 7, Reason: "the nightly report"}, Place: 1, Mode: api.Exclusive}}}
	for name, one := range map[string]struct {
		print func(g *globals, out io.Writer) error
		says  string
	}{
		"why a client waits": {func(g *globals, out io.Writer) error {
			return g.printLocks(out, func(yield func(client.LockInfo, error) bool) { yield(lock, nil) })
		}, "the nightly report"},
		"that more hold a lock than its history lists": {func(g *globals, out io.Writer) error {
			return g.printHistory(out, api.History{Path: "/ls/local/a", MoreHolders: 777, Holdings: []api.Holding{{Session: 7, Mode: api.Shared, Generation: 3}}})
		}, "777"},
		"that more hold a lock that is waited for": {func(g *globals, out io.Writer) error {
			w := &lockWait{o: &workOptions{globals: g, err: out, out: io.Discard, path: api.MustParsePath("/ls/local/a")}}
			w.show(waitState{client.Queued{Place: 1, Waiting: 1, Holders: []api.Holder{{Session: 7, Host: "h"}}, MoreHolders: 777}, ""})
			return nil
		}, "777"},
		"that more have a node in their caches": {func(g *globals, out io.Writer) error {
			return g.printExplanation(out, client.Explanation{MoreCachers: 777, Cachers: []client.Cacher{{Holder: api.Holder{Session: 7}}}})
		}, "777"},
	} {
		for _, format := range []string{"text", "json"} {
			var out bytes.Buffer
			if err := one.print(&globals{output: term.Format(format)}, &out); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), one.says) {
				t.Errorf("as %s it does not say %s:\n%s", format, name, &out)
			}
		}
	}
}
