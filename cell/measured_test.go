package cell_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Every call is measured once, when it has been answered, with its method and its code; so is a KeepAlive, which waits
// without a goroutine. What calls wait for is measured, too.
func TestCallsAreMeasured(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		first, second := dial(t, ctx, c, "first", client.Config{}), dial(t, ctx, c, "second", client.Config{})
		held := acquire(t, ctx, open(t, ctx, first, "/ls/local/lock", 0))
		waits := open(t, ctx, second, "/ls/local/lock", 0)
		if _, err := first.Open(ctx, "/ls/local/none", client.OpenOptions{Read: true}); api.CodeOf(err) != api.NotFound {
			t.Fatal(err)
		}
		master := c.Replica(c.Master())
		before, sumsBefore := cell.Measured(master)
		granted := make(chan error)
		go func() {
			_, err := waits.Acquire(ctx, api.Exclusive)
			granted <- err
		}()
		time.Sleep(20 * time.Second)
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		after, sums := cell.Measured(master)
		for method, want := range map[string]uint64{"Acquire": 1, "Release": 1, "Open": 0} {
			var more uint64
			for name, n := range after { // of every code
				if strings.HasPrefix(name, "chubby_call_seconds ") && strings.HasSuffix(name, " "+method) {
					more += n - before[name]
				}
			}
			if more != want {
				t.Errorf("%d more calls of %s were counted, want %d: %v", more, method, want, after)
			}
		}
		if got := before["chubby_call_seconds OK Open"]; got != 2 {
			t.Errorf("%d calls of Open were answered, want 2", got)
		}
		if got := before["chubby_call_seconds NotFound Open"]; got != 1 {
			t.Errorf("%d calls of Open were answered with NotFound, want 1", got)
		}
		const acquire = "chubby_call_seconds OK Acquire"
		if took := sums[acquire] - sumsBefore[acquire]; took < 20 || took > 21 {
			t.Errorf("Acquire took %v s, want 20", took)
		}
		const keepAlives = "chubby_call_seconds OK KeepAlives"
		if after[keepAlives] == before[keepAlives] {
			t.Errorf("in 20 s no KeepAlive was answered: %v", after)
		}
		for name, n := range after {
			if strings.HasSuffix(name, " KeepAlives") && name != keepAlives && n > 0 {
				t.Errorf("%s: %d, but all were answered well: one was counted when it began to wait", name, n)
			}
		}
		for _, name := range []string{"chubby_log_append_seconds", "chubby_apply_seconds", "chubby_leadership_proof_seconds", "chubby_takeover_seconds"} {
			if after[name] == 0 {
				t.Errorf("%s was never measured", name)
			}
		}
		if n := after["chubby_takeover_seconds"]; n != 1 {
			t.Errorf("%d takeovers, want 1", n)
		}
	})
}
