package supervise

import (
	"strings"
	"testing"
	"time"
)

// Processes that a command leaves still work under the lock, so they end before the lock is released.
func TestLeftoversAreStopped(t *testing.T) {
	f := newFIFO(t)
	var notices []string
	c := shell(`exec 5>"$1"; mkfifo "$1.go"
		setsid sh -c 'echo there >&5; echo go >"$0.go"; sleep 1000' "$1" & read line <"$1.go"; exit 3`, f.name)
	c.Notice = func(text string) { notices = append(notices, text) }
	p := start(t, c)
	f.line(t)
	if got := wait(t, p); got != (Result{Code: 3}) {
		t.Errorf("result %+v, want 3, not cut", got)
	}
	f.ended(t)
	if len(notices) != 1 || !strings.Contains(notices[0], "behind") {
		t.Errorf("notices %q, want one about what was left behind", notices)
	}
}

// Each of these descendants forks and ends at once, so none is in a list of processes for long. They are gone
// when the command is reported gone.
func TestHoppingDescendants(t *testing.T) {
	const hop = `exec 5>"$1"; echo up >&5; f() { [ "$1" -gt 0 ] || exec sleep 60; f $(($1-1)) & exit 0; }; f $2 & exit 0`
	for _, hops := range []string{"2", "20", "50"} {
		for range 5 {
			f := newFIFO(t)
			c := shell(hop, f.name, hops)
			c.KillAfter = 200 * time.Millisecond
			p := start(t, c)
			f.line(t)
			wait(t, p)
			f.ended(t)
		}
	}
}
