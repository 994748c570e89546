//go:build linux

package recipe

import (
	"context"
	"errors"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A server that is started again right after a crash has its own name once the lease of
// the crashed one has ended; that of another it is refused at once, unless it says that
// its names are nobody else's.
func TestNameAfterACrash(t *testing.T) {
	t.Parallel()
	const dead = 1 << 30 // more than a system gives out
	const address = "127.0.0.1:9999"
	announceAs := func(options ...AnnounceOption) func(context.Context, *client.Client) error {
		return func(ctx context.Context, c *client.Client) error {
			_, err := Announce(ctx, c, up, url.PathEscape(address), nil, options...)
			return err
		}
	}
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		host  string // of the crashed one
		pid   int
		again func(ctx context.Context, c *client.Client) error
		had   bool
	}{
		"a process that is dead":            {here, dead, announceAs(), true},
		"a process that runs":               {here, os.Getppid(), announceAs(), false},
		"on another host":                   {"elsewhere", dead, announceAs(), false},
		"on another host, and it is waited": {"elsewhere", dead, announceAs(WaitForName()), true},
		"an address": {"elsewhere", dead, func(ctx context.Context, c *client.Client) error {
			_, err := Publish(ctx, c, up, Endpoint{Address: address})
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inSmallWorld(t, func(w *world) {
				crashed := w.dial("crashed")
				r := sign(crashed)
				r.Host, r.PID = test.host, test.pid
				_, err := announce(w.ctx, crashed, up, url.PathEscape(address), r, announceOptions{})
				w.ok(err)
				w.Cut("crashed")
				began := time.Now()
				err = test.again(w.ctx, w.dial("again"))
				waited := time.Since(began)
				switch {
				case test.had && (err != nil || waited < api.DefaultLease/2 || waited > 2*api.DefaultLease):
					t.Errorf("%v after %v", err, waited)
				case !test.had && (!errors.Is(err, api.Exists) || waited > time.Second):
					t.Errorf("%v after %v", err, waited)
				}
			})
		})
	}
}

// So has a candidate, if it says so.
func TestCandidateAfterACrash(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		crashed, again := w.dial("crashed"), w.dial("again")
		r := sign(crashed)
		r.Host = "elsewhere"
		w.mkdir(crashed, candidatesOf(office))
		_, err := announce(w.ctx, crashed, candidatesOf(office), "name", r, announceOptions{})
		w.ok(err)
		w.Cut("crashed")
		if _, err := Campaign(w.ctx, again, office, CampaignOptions{LockDelay: NoLockDelay, Name: "name"}); !errors.Is(err, api.Exists) {
			t.Errorf("without the option: %v", err)
		}
		p, err := Campaign(w.ctx, again, office, CampaignOptions{LockDelay: NoLockDelay, Name: "name", WaitForName: true})
		w.ok(err)
		w.ok(p.Resign(w.ctx))
	})
}
