package cell_test

import (
	"context"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// changedBack has a change of the replicas taken back at another master while the first one still asks what it has to know for the change; and the first
// one leads again when it has its answers, as soon as the second one has noted that all is as it was.
func changedBack(t *testing.T, ctx context.Context, c *celltest.Cell, by *client.Client, first, second string, back client.MemberChange) {
	t.Helper()
	time.Sleep(250 * time.Millisecond) // it has begun to ask
	if err := c.Replica(first).Transfer(ctx, second); err != nil {
		t.Fatal(err)
	}
	if err := client.ChangeMembers(ctx, by, back, nil); err != nil {
		t.Fatal(err)
	}
	for settled := false; !settled && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		_, settled = cell.Voters(c.Replica(second))
	}
	if err := c.Replica(second).Transfer(ctx, first); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second)
}

// What stays is a member for Raft as well: three of five replicas are a majority.
func TestWhatIsKeptHasItsVote(t *testing.T) {
	inCellOf(t, 5, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		first := c.Master()
		others := othersThan(first, 5)
		leaving, dead, second, last := others[0], others[1], others[2], others[3]
		c.Kill(dead) // so that the question takes its time
		if err := client.ChangeMembers(ctx, by, client.MemberChange{Remove: leaving}, nil); err != nil {
			t.Fatal(err)
		}
		changedBack(t, ctx, c, by, first, second, client.MemberChange{Keep: leaving})
		if ids, settled := cell.Voters(c.Replica(c.Master())); !settled || len(ids) != 5 {
			t.Errorf("of five members a vote have %v; no change is under way: %v", ids, settled)
		}
		c.Kill(last)
		within, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err := by.Put(within, "/ls/local/after", nil); err != nil {
			t.Errorf("three of five members run: %v", err)
		}
	})
}
