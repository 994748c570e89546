package main

import (
	"context"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// What each drill does is what its report says: of a cell whose clock is virtual it is known how long.
func TestDrillsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		c := celltest.Start(t, 3, func(cfg *cell.Config) { cfg.InsecurePrincipals = true })
		victim, err := client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("victim"), Clock: c.ClockOf("victim")})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = victim.Close(ctx) }()
		h, err := victim.Open(ctx, "/ls/local/held", client.OpenOptions{Write: true, Create: client.File, LockDelay: 2 * time.Second})
		if err == nil {
			_, err = h.Acquire(ctx, api.Exclusive)
		}
		if err != nil {
			t.Fatal(err)
		}
		s := &stage{t: t, cell: c, ctx: ctx}
		for _, one := range [][]string{
			{"drill failover local --yes", `no answer for \d+ms`, `The master was (r\d) \(epoch \d+\), and is`, `Locks held before: 1, of which 1 have`},
			{"drill failover local --hard --yes", `no answer for (\d+ms|1\.\d+s)`, `The master was`},
			{"drill outage 20s local --yes", `no answer for 2[01](\.\d+)?s`, `that session was jeopardy`, `that session was safe`, `0 have ended`},
			{"drill outage 20s local --yes --limit 20001ms", `is longer than --limit`},
			{"drill slow-client local --yes --for 4s", `no answer for 2\.[45]`, `silent for 4\.0s`, `until its cache lease of 2\.5s was over`},
			{"drill slow-client local --yes --for 2s", `silent for 2\.0s. The longest write waited 2\.0`},
			{"drill slow-client local --yes --for 2s --file /ls/local/held", `silent for 2\.0s. The longest write waited 0\.00s`},
			{"drill session-loss " + victim.Session().String() + " local --yes", `1 have ended`, `/ls/local/held was held by .*; that ended \(.*\), and nobody has it, since \d`},
		} {
			printed := s.run(one[0])
			for _, want := range one[1:] {
				if !regexp.MustCompile(want).MatchString(printed) {
					t.Errorf("%s: no %q in\n%s", one[0], want, printed)
				}
			}
			time.Sleep(20 * time.Second)
		}
	})
}
