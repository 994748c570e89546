package processes_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
)

// A test of what works on while one master after the other is killed.
func ExampleCell_KillMastersFor() {
	var work func(ctx context.Context, k *client.Keeper) error // what is tested
	_ = func(t *testing.T) {
		c := processes.Start(t, 3)
		keeper, err := client.Keep(t.Context(), client.Config{Servers: c.Servers()})
		if err != nil {
			t.Fatal(err)
		}
		busy, done := context.WithCancel(t.Context())
		var killing sync.WaitGroup
		killing.Go(func() {
			c.KillMastersFor(busy, time.Second, 20*time.Second, 3) // each when it has served for a second; three at least
			done()
		})
		for err == nil && busy.Err() == nil {
			err = work(t.Context(), keeper)
		}
		done()
		killing.Wait()
		if err != nil {
			t.Error(err)
		}
		if err := keeper.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
