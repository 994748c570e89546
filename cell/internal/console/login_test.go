package console

import (
	"strconv"
	"testing"
	"time"

	"github.com/chubbylock/chubby/session"
)

// A login counts for an hour, and while what was shown for it counts; not more than a bounded number of them do at a time, and not
// more than a few of one principal. The oldest ends.
func TestLoginsEnd(t *testing.T) {
	now := session.Instant(time.Hour)
	ls := newLogins(func() session.Instant { return now })
	always := func() bool { return true }
	counts := func(cookie string, want bool) {
		t.Helper()
		if l, ok := ls.find(cookie); ok != want || ok && l.principal == "" {
			t.Errorf("the login of %q counts: %v, want %v", cookie, ok, want)
		}
	}
	counts("", false)
	counts("anything", false)
	first := ls.add("ops", always)
	stream, _ := ls.find(first) // it goes on for longer than a request
	now = now.Add(loginTime - 1)
	counts(first, true)
	if !stream.counts() {
		t.Error("what was begun with a login ends before it")
	}
	now = now.Add(1)
	counts(first, false)
	if stream.counts() {
		t.Error("what was begun with a login goes on after it")
	}

	counted := true
	second := ls.add("ops", func() bool { return counted })
	counts(second, true)
	counted = false
	counts(second, false)
	ls.end(second)

	var own []string
	for range maxOwn + 1 {
		own = append(own, ls.add("alice", always))
	}
	counts(own[0], false)
	for _, cookie := range own[1:] {
		counts(cookie, true)
	}
	stream, _ = ls.find(own[1])
	ls.end(own[1])
	counts(own[1], false)
	if stream.counts() {
		t.Error("what was begun with a login goes on after the logout")
	}
	for i := range 2 * maxLogins {
		counts(ls.add("p"+strconv.Itoa(i), always), true)
	}
	if len(ls.all) > maxLogins {
		t.Errorf("%d logins are kept", len(ls.all))
	}
	counts(own[2], false)
}
