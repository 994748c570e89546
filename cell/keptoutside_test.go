package cell_test

import (
	"context"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A removal is taken back at another master while the first one still asks whether the others can do without the replica; and the first one
// leads again when it has its answers. What stays is a member for Raft as well: three of five replicas are a majority. The replicas look at
// the roster at two moments of their own, so it is tried at both.
func TestWhatIsKeptHasItsVote(t *testing.T) {
	const look = 200 * time.Millisecond
	for name, phase := range map[string]time.Duration{"even": look / 20, "odd": look/2 + look/20} {
		t.Run(name, func(t *testing.T) {
			inCellOf(t, 5, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
				first := c.Master()
				others := othersThan(first, 5)
				leaving, dead, second, last := others[0], others[1], others[2], others[3]
				c.Kill(dead) // so that the question takes its time
				if err := client.ChangeMembers(ctx, by, client.MemberChange{Remove: leaving}, nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(look) // it has begun to ask
				time.Sleep(time.Until(time.Now().Truncate(look).Add(look + phase)))
				if err := c.Replica(first).Transfer(ctx, second); err != nil {
					t.Fatal(err)
				}
				if err := client.ChangeMembers(ctx, by, client.MemberChange{Keep: leaving}, nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(look) // it is a member again
				if err := c.Replica(second).Transfer(ctx, first); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				master := c.Replica(c.Master())
				if ids, settled := cell.Voters(master); !settled || len(ids) != 5 {
					t.Errorf("of five members a vote have %v; no change is under way: %v", ids, settled)
				}
				c.Kill(last)
				within, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				if _, err := by.Put(within, "/ls/local/after", nil); err != nil {
					t.Errorf("three of five members run: %v", err)
				}
			})
		})
	}
}
