package cell_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// others returns the founders of a cell without some of them.
func others(n int, without ...string) (list []string) {
	for _, id := range []string{"r1", "r2", "r3", "r4", "r5"}[:n] {
		if !slices.Contains(without, id) {
			list = append(list, id)
		}
	}
	return list
}

// findTheirWay waits until replicas follow a master, for a while.
func findTheirWay(t *testing.T, c *celltest.Cell, ids ...string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		lost := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return c.Replica(id).Health().Ready })
		if len(lost) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v do not find their way back: %+v", lost, c.Replica(lost[0]).Health())
		}
	}
}

// A replica that was down while another one was replaced follows the newcomer, which leads when it comes back; and it votes for the newcomer
// when that is needed for a majority, as soon as it is back.
func TestNewcomersAreFollowedByThoseThatWereAway(t *testing.T) {
	for name, follows := range map[string]bool{"it comes back to a master": true, "it is needed for one": false} {
		t.Run(name, func(t *testing.T) {
			inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				master := c.Master()
				list := others(3, master)
				away, old := list[0], list[1]
				c.Kill(away)
				operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
				replace(t, ctx, c, operator, old, "r4")
				c.Kill(old)
				if _, err := operator.Transfer(ctx, "r4"); err != nil {
					t.Fatal(err)
				}
				write(t, ctx, c, "after")
				if follows {
					time.Sleep(time.Minute) // until no call of the last master is under way any more
					c.Restart(away)
					findTheirWay(t, c, away)
				}
				c.Kill(master)
				if !follows {
					c.Restart(away)
				}
				findTheirWay(t, c, away, "r4")
				if got := read(ctx, c); got != "after" {
					t.Errorf("the contents are %q", got)
				}
			})
		})
	}
}

// Two replicas of five are cut off while the three others are replaced, so that they know none of those that are left. They find their way, whoever is down then.
func TestAllThatAReplicaKnowsHaveLeft(t *testing.T) {
	inCellOf(t, 5, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		master := c.Master()
		list := others(5, master)
		c.Isolate(list[0], list[1])
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		for i, old := range []string{list[2], list[3], master} {
			replace(t, ctx, c, operator, old, []string{"r6", "r7", "r8"}[i])
			time.Sleep(10 * time.Second)
			c.Kill(old)
		}
		c.Kill(c.Master())
		c.Rejoin(list[0], list[1])
		findTheirWay(t, c, list[0], list[1])
	})
}

// A replica that was away since a newcomer had no vote yet votes for it.
func TestNewcomersHaveVotesOfThoseThatKnewThemWithoutOne(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		master := c.Master()
		list := others(3, master)
		away, old := list[0], list[1]
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		joined := joins(ctx, c, "r4")
		time.Sleep(time.Second)
		c.Cut("r4") // so that it has no vote for a while
		add := client.MemberChange{Add: "r4", Raft: "r4:7431", Remove: old}
		done := make(chan error, 1)
		go func() { done <- client.ChangeMembers(ctx, operator, add, nil) }()
		time.Sleep(500 * time.Millisecond)
		c.Heal("r4")
		for len(cell.Servers(c.Replica(away))) < 4 {
			time.Sleep(time.Millisecond)
		}
		c.Isolate(away)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := <-joined; err != nil {
			t.Fatal(err)
		}
		for { // until the old one has left
			if ids, settled := cell.Voters(c.Replica(master)); settled && len(ids) == 3 {
				break
			}
			time.Sleep(time.Second)
		}
		if suffrage := cell.Servers(c.Replica(away))["r4"]; suffrage != "Nonvoter" {
			t.Fatalf("%s, which is away, knows r4 as %q", away, suffrage)
		}
		write(t, ctx, c, "after")
		c.Kill(old)
		c.Kill(master)
		c.Rejoin(away)
		findTheirWay(t, c, away, "r4")
		if got := read(ctx, c); got != "after" {
			t.Errorf("the contents are %q", got)
		}
	})
}

// A spare stands by, with a list of replicas that nobody has brought up to date, while all of these are replaced. It takes the place of one that is dead all the same.
func TestSpareWhoseListIsOld(t *testing.T) {
	var founders []cell.Member
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		var servers []string
		for i := range 9 {
			servers = append(servers, fmt.Sprintf("r%d:7421", i+1))
		}
		operator := dial(t, ctx, c, "operator", client.Config{Servers: servers, NoCache: true})
		joined := joins(ctx, c, "r9")
		time.Sleep(time.Second)
		if err := client.ChangeMembers(ctx, operator, client.MemberChange{Add: "r9", Raft: "r9:7431", Spare: true}, nil); err != nil {
			t.Fatal(err)
		}
		c.Isolate("r9") // else it could follow what is told from one to the next
		for i, old := range others(3) {
			replace(t, ctx, c, operator, old, []string{"r4", "r5", "r6"}[i])
			c.Kill(old)
		}
		c.Rejoin("r9")
		c.Kill("r4")
		becomes(t, ctx, operator, "r5, r6, r9", 5*time.Second)
		if err := <-joined; err != nil {
			t.Fatal(err)
		}
		findTheirWay(t, c, "r9")
	}, func(cfg *cell.Config) {
		cfg.ReplaceAfter = 20 * time.Second
		if cfg.Bootstrap {
			founders = cfg.Members
		} else if cfg.ID == "r9" {
			cfg.Members = append(slices.Clip(founders), cfg.Members[slices.IndexFunc(cfg.Members, func(m cell.Member) bool { return m.ID == "r9" })])
		}
	})
}
