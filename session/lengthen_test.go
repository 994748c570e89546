package session_test

import (
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Chubby §2.8: leases grow to about 60 s under heavy load, by the documented
// rule; a client that asked for a short lease keeps it.
func TestLengthen(t *testing.T) {
	const rate = 1000
	for _, step := range []struct {
		asked    time.Duration
		sessions int
		want     time.Duration
	}{
		{12 * time.Second, 0, 12 * time.Second},
		{12 * time.Second, 7_000, 12 * time.Second},
		{12 * time.Second, 7_001, 24 * time.Second},
		{12 * time.Second, 14_000, 24 * time.Second},
		{12 * time.Second, 14_001, 36 * time.Second},
		{12 * time.Second, 30_000, 60 * time.Second},
		{12 * time.Second, 1_000_000, 60 * time.Second},
		{30 * time.Second, 7_001, 30 * time.Second},
		{30 * time.Second, 20_000, 36 * time.Second},
		{60 * time.Second, 0, 60 * time.Second},
		{2 * time.Second, 1_000_000, 2 * time.Second},
	} {
		if got := session.Lengthen(step.asked, step.sessions, rate); got != step.want {
			t.Errorf("asked for %v, %d sessions: %v, want %v", step.asked, step.sessions, got, step.want)
		}
	}
	if got := session.Lengthen(api.DefaultLease, 1_000_000, 0); got != api.DefaultLease {
		t.Errorf("without a rate: %v", got)
	}
}

// A session is never granted less than it asked for, nor less when there are
// more sessions. Leases of at least the default length keep to the rate until
// they are the longest.
func TestLengthenIsMonotone(t *testing.T) {
	last := time.Duration(0)
	for n := 0; n < 60_000; n += 100 {
		got := session.Lengthen(api.DefaultLease, n, 500)
		if got < last {
			t.Fatalf("%d sessions: %v, with fewer sessions %v", n, got, last)
		}
		if sent := float64(n) / session.Due(got).Seconds(); got < api.MaxLease && sent > 500 {
			t.Fatalf("%d sessions of %v send %.0f KeepAlives a second", n, got, sent)
		}
		last = got
	}
}
