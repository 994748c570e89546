package cell_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// The library tries again what a replica refuses because of its rate, after its usual pauses: a program that asks for more than
// it may is served as fast as it may, and its session lives.
func TestRefusedForTheirRateIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		const rate, calls = 20, 400
		c := celltest.Start(t, 1, func(cfg *cell.Config) { cfg.MaxCallsPerAddress = rate })
		cl := dial(t, ctx, c, "host", client.Config{NoCache: true, OnState: func(s client.StateChange) { t.Errorf("the session: %v", s) }})
		file := open(t, ctx, cl, "/ls/local/file", 0)
		began := time.Now()
		for range calls {
			if _, err := file.Stat(ctx); err != nil {
				t.Fatal(err)
			}
		}
		lock, err := file.Acquire(ctx, api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if took, least := time.Since(began), (calls/rate-1)*time.Second; took < least || took > 3*least {
			t.Errorf("%d calls, at %d a second, took %v", calls, rate, took)
		}
	})
}
