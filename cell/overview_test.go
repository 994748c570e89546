package cell_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// What waits longest is first, with who holds it and who waits, and what is not waited for is not there.
func TestOverviewOfWaits(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		holder, waiter := dial(t, ctx, c, "holder", client.Config{}), dial(t, ctx, c, "waiter", client.Config{})
		acquire(t, ctx, open(t, ctx, holder, "/ls/local/held", 0)) // nobody waits for it
		waiting, cancel := context.WithCancel(ctx)
		ended := make(chan struct{}, 3)
		for _, name := range []string{"b", "a", "c"} {
			acquire(t, ctx, open(t, ctx, holder, "/ls/local/"+name, 0))
			h := open(t, ctx, waiter, "/ls/local/"+name, 0)
			go func() {
				_, _ = h.Acquire(waiting, api.Exclusive)
				ended <- struct{}{}
			}()
			time.Sleep(2 * time.Second)
		}
		o, err := waiter.Cell().Overview(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, w := range o.Waits {
			paths = append(paths, w.Path)
			if len(w.Holders) != 1 || w.Holders[0].Session != holder.Session() || len(w.Waiters) != 1 || w.Waiters[0].Session != waiter.Session() {
				t.Errorf("%s: holders %v, waiters %v", w.Path, w.Holders, w.Waiters)
			}
		}
		if want := []string{"/ls/local/b", "/ls/local/a"}; !slices.Equal(paths, want) || o.MoreWaits != 1 {
			t.Errorf("%q wait, and %d more; want %q and one", paths, o.MoreWaits, want)
		}
		if !o.Whole || o.Backlog.Waiters != 3 || o.Counts["call:Open"] < 7 || o.Counts["calls"] <= o.Counts["call:Open"] || o.Counts["sessions-begun"] != 2 {
			t.Errorf("whole %v, %+v, %v", o.Whole, o.Backlog, o.Counts)
		}
		if len(o.Holdups) > 0 {
			t.Errorf("no change waits, and %+v are shown", o.Holdups)
		}
		cancel()
		for range 3 {
			<-ended
		}
		time.Sleep(time.Second) // the master is told
		if o, err = waiter.Cell().Overview(ctx, 0); err != nil || len(o.Waits) > 0 || o.MoreWaits > 0 || o.Backlog.Waiters > 0 {
			t.Errorf("nobody waits any more: %+v, %v", o, err)
		}
	})
}

// A change that waits for a client is shown with that client.
func TestOverviewOfHoldups(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		writer, slow := dial(t, ctx, c, "writer", client.Config{}), dial(t, ctx, c, "slow", client.Config{})
		h := open(t, ctx, writer, "/ls/local/file", 0)
		cached := open(t, ctx, slow, "/ls/local/file", 0)
		for range 2 { // the second time out of the cache, which is in use from then on
			if _, _, err := cached.Contents(ctx); err != nil {
				t.Fatal(err)
			}
		}
		c.Cut("slow")
		written := make(chan error, 1)
		go func() { _, err := h.SetContents(ctx, []byte("new")); written <- err }()
		time.Sleep(500 * time.Millisecond)
		o, err := writer.Cell().Overview(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Holdups) != 1 || o.Backlog.Changes != 1 {
			t.Fatalf("%+v are shown, %+v", o.Holdups, o.Backlog)
		}
		one := o.Holdups[0]
		if one.Path != "/ls/local/file" || one.Waiting <= 0 || one.Waiting > time.Second || len(one.Slow) != 1 || one.Slow[0].Session != slow.Session() || one.Slow[0].Host == "" {
			t.Errorf("the change is shown as %+v", one)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		if o, err = writer.Cell().Overview(ctx, 0); err != nil || len(o.Holdups) > 0 {
			t.Errorf("the change is done: %+v, %v", o, err)
		}
	})
}

// Who is no operator sees what he may read, and no numbers of the cell; what is waited for by others stays hidden.
func TestOverviewIsForWhoMayLook(t *testing.T) {
	inTLSCell(t, func(t *testing.T, ctx context.Context, c tlsCell) {
		operator := dial(t, ctx, c.Cell, "operator", client.Config{TLS: c.clients.client("operator")})
		h := open(t, ctx, operator, "/ls/local/secret", 0)
		acquire(t, ctx, h)
		name := func(list string) {
			t.Helper()
			file, err := operator.Open(ctx, "/ls/local/acl/"+list, client.OpenOptions{Write: true, Create: client.File})
			if err == nil {
				_, err = file.SetContents(ctx, []byte("operator\n"))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		name("us")
		changer, err := operator.Open(ctx, "/ls/local/secret", client.OpenOptions{ChangeACL: true})
		if err == nil {
			_, err = changer.SetACL(ctx, api.ACL{Read: "us", Write: "us", Change: "us"})
		}
		if err != nil {
			t.Fatal(err)
		}
		name("operators")
		again := dial(t, ctx, c.Cell, "again", client.Config{TLS: c.clients.client("operator")})
		waiting, cancel := context.WithCancel(ctx)
		waits, ended := open(t, ctx, again, "/ls/local/secret", 0), make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = waits.Acquire(waiting, api.Exclusive)
		}()
		time.Sleep(time.Second)
		stranger := dial(t, ctx, c.Cell, "stranger", client.Config{TLS: c.clients.client("stranger")})
		if o, err := stranger.Cell().Overview(ctx, 0); err != nil || o.Whole || len(o.Waits) > 0 || o.MoreWaits > 0 || len(o.Counts) > 0 || len(o.Takeovers) > 0 || o.Backlog != (client.Backlog{}) {
			t.Errorf("a stranger sees %+v, %v", o, err)
		}
		if o, err := operator.Cell().Overview(ctx, 0); err != nil || !o.Whole || len(o.Waits) != 1 || o.Backlog.Waiters != 1 || len(o.Takeovers) != 1 || o.Takeovers[0].Epoch != o.Epoch || len(o.Takeovers[0].Phases) < 2 {
			t.Errorf("an operator sees %+v, %v", o, err)
		}
		cancel()
		<-ended
	})
}
