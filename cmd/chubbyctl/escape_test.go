package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unicode"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// The names and texts of others give no orders to a terminal.
func TestNothingReachesTheTerminal(t *testing.T) {
	evil := "\x1b]0;title\a\nchubbyctl: forged\u202e"
	h := api.Holder{Session: 1, Principal: evil, Host: evil, Reason: evil}
	lock := client.LockInfo{Path: "/ls/local/a", Mode: api.Exclusive, Holders: []api.Holder{h}, Waiters: []client.Waiter{{Holder: h, Mode: api.Shared}}}
	for _, output := range []term.Format{term.Text, term.JSON} {
		g := &globals{output: output}
		for name, write := range map[string]func(io.Writer) error{
			"locks":    func(w io.Writer) error { return g.printLocks(w, each(lock)) },
			"sessions": func(w io.Writer) error { return g.printSessions(w, each(client.SessionInfo{Holder: h})) },
			"explain": func(w io.Writer) error {
				return g.printExplanation(w, client.Explanation{Lock: lock, Sentences: []string{evil}, Cachers: []client.Cacher{{Holder: h}}})
			},
			"error": func(w io.Writer) error {
				g.printError(w, &api.Error{Code: api.LockHeld, Message: "held by " + evil, Holders: []api.Holder{h}})
				return nil
			},
			"notice": func(w io.Writer) error { g.notice(w, evil); return nil },
			"event": func(w io.Writer) error {
				o := &watchOptions{globals: g, now: now, out: w}
				e := api.Event{Kind: api.EventLockLost, Path: "/ls/local/a", Explanation: evil}
				return o.printEvent(e, newEventFields(e, o.now()))
			},
		} {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Error(err)
			}
			for line := range strings.Lines(b.String()) {
				if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return unicode.IsControl(r) || r == '\u202e' }) {
					t.Errorf("%s -o %s lets control characters through: %q", name, output, line)
				}
				if name == "error" && strings.HasPrefix(line, "chubbyctl: forged") {
					t.Errorf("a line was forged: %q", b.String())
				}
			}
		}
	}
}
