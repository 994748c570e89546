package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// A name service that does not answer delays no search for the master by more than a
// replica that does not, where the servers of the search before are known; neither a
// crash of the master nor one that hangs is noticed by the application.
func TestNameServiceHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg, r := f.recorded()
		c := f.client(cfg)
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
		c.cell.locator.mu.Lock()
		c.cell.locator.resolve = func(ctx context.Context) ([]string, error) {
			<-ctx.Done()
			return nil, &api.Error{Code: api.Unavailable, Err: ctx.Err()}
		}
		c.cell.locator.mu.Unlock()
		time.Sleep(time.Second)
		f.cut("a:1") // it crashes
		f.elect("b:1")
		began := time.Now()
		if _, err := h.SetContents(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 500*time.Millisecond {
			t.Errorf("a fail-over took %v", d)
		}
		time.Sleep(time.Second)
		f.script(func(s seen) verb {
			if s.address == "b:1" {
				return hang
			}
			return nil
		})
		f.elect("c:1")
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.states(); len(got) > 0 {
			t.Errorf("states %v", got)
		}
		f.heal()
		closeClient(t, c)
	})
}
