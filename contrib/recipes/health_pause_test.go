//go:build linux

package recipes

import (
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// The session ends while the machine is paused, and a check fails when it wakes up. The announcement still ends with
// SessionExpired: programs that renew sessions go by that code.
func TestHealthyAfterAPause(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		for range 5 {
			sick, hang := &patient{}, make(chan struct{})
			p, err := announce(w.ctx, w.dial("a"), "a", "", Check{sick.check, 5 * time.Minute, 1})
			w.ok(err)
			sick.becomes(errSick(), hang)
			pass(5*time.Minute + time.Second)
			w.Pause("a")
			pass(2 * time.Minute)
			w.Resume("a")
			close(hang)
			w.over(p)
			if err := p.Err(); !errors.Is(err, api.SessionExpired) {
				t.Errorf("the session is over: %v", err)
			}
			w.ok(p.Withdraw(w.ctx))
		}
	})
}
