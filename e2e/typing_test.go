package e2e

import (
	"testing"
	"time"
)

// One Ctrl-C ends a command that waits for its input to be typed, and nothing is sent: there is no
// cell here.
func TestCtrlCWhileTyping(t *testing.T) {
	besideOthers(t)
	for _, command := range [][]string{{"put", "/ls/local/x"}, {"put", "/ls/local/x", "-"}, {"acl", "file", "put", "ops"}} {
		term, process := onTerminal(t, bin("chubbyctl"), command...)
		s := &shell{process, term}
		s.shows("Ctrl-D", 20*time.Second)
		s.types("half a line")
		s.types("\x03")
		if code := process.wait(10 * time.Second); code != 130 && code != -1 { // -1 is by the signal itself
			t.Errorf("%q: exit %d, want an end by Ctrl-C", command, code)
		}
	}
}
