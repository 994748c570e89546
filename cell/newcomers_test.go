package cell_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
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
		stopIf(t, time.Now().After(end), "%v do not find their way back: %+v", lost, c.Replica(lost[0]).Health())
	}
}

// Two replicas of five are cut off while the three others are replaced, so that they know none of those that are left. They find their way, and any one may be down then.
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
		noErr(t, <-done)
		noErr(t, <-joined)
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
		equal(t, read(ctx, c), "after", "the contents are %q")
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
		joined := standsBy(t, ctx, c, operator, "r9")
		c.Isolate("r9") // else it could follow what is told from one to the next
		for i, old := range others(3) {
			replace(t, ctx, c, operator, old, []string{"r4", "r5", "r6"}[i])
			c.Kill(old)
		}
		c.Rejoin("r9")
		c.Kill("r4")
		becomes(t, ctx, operator, "r5, r6, r9", 5*time.Second)
		noErr(t, <-joined)
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

// standsBy has a replica stand by as a spare; the channel has the result of its start.
func standsBy(t *testing.T, ctx context.Context, c *celltest.Cell, by *client.Client, id string) <-chan error {
	t.Helper()
	joined := joins(ctx, c, id)
	time.Sleep(time.Second)
	noErr(t, client.ChangeMembers(ctx, by, client.MemberChange{Add: id, Raft: id + ":7431", Spare: true}, func([]client.Member) {}))
	return joined
}

// membersAre returns the replicas of a cell in one line: whether each has no vote, and whether it joins, leaves or stands by.
func membersAre(t *testing.T, ctx context.Context, c *client.Client) string {
	t.Helper()
	members := must(c.Cell().Members(ctx))(t)
	var words []string
	for _, m := range members {
		if !m.Voter {
			m.ID += " without a vote"
		}
		words = append(words, strings.TrimSpace(m.ID+" "+m.Phase))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// becomes waits until the cell has these replicas, which it must not have before some time is over.
func becomes(t *testing.T, ctx context.Context, c *client.Client, want string, notBefore time.Duration) {
	t.Helper()
	begun := time.Now()
	for got := ""; got != want; got = membersAre(t, ctx, c) {
		stopIf(t, ctx.Err() != nil || time.Since(begun) > notBefore+2*time.Minute, "the replicas are %s, want %s", got, want)
		time.Sleep(time.Second)
	}
	if took := time.Since(begun); took < notBefore {
		t.Errorf("the replicas were %s after %v", want, took)
	}
}

// A spare stands by until a replica has been dead for long, by itself takes its place, and holds what it held. One that comes back in time stays; fail-overs
// do not begin the time anew.
func TestSpare(t *testing.T) {
	const long = 40 * time.Second
	inCellOf(t, 5, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		write(t, ctx, c, "before")
		joined := standsBy(t, ctx, c, by, "r6")
		add := client.MemberChange{Add: "r6", Raft: "r6:7431", Spare: true}
		fails(t, client.ChangeMembers(ctx, by, add, nil), api.Exists, "added again")
		add.Remove = "r1"
		fails(t, client.ChangeMembers(ctx, by, add, nil), api.InvalidArgument, "a spare that replaces somebody")
		const before = "r1, r2, r3, r4, r5, r6 without a vote spare"
		becomes(t, ctx, by, before, 0) // the replica that is asked may be behind
		status, err := by.Cell().Status(ctx)
		failIf(t, err != nil || len(status.Replicas) != 5, "the status is %+v, %v", status, err)
		dead := "r1"
		if c.Master() == dead {
			dead = "r2"
		}
		c.Kill(dead)
		time.Sleep(long - 20*time.Second)
		c.Restart(dead)
		time.Sleep(long + 30*time.Second)
		equal(t, membersAre(t, ctx, by), before, "a replica came back in time, and the replicas are %s")
		c.Kill(dead)
		time.Sleep(long - 25*time.Second)
		equal(t, membersAre(t, ctx, by), before, "the spare did not stand by: %s")
		c.Restart(c.FailOver())
		want := strings.Replace("r1, r2, r3, r4, r5, r6", dead+", ", "", 1)
		becomes(t, ctx, by, want, 5*time.Second)
		noErr(t, <-joined)
		if err := c.TryRestart(ctx, dead); err == nil {
			<-c.Replica(dead).Done()
			err = c.Replica(dead).Err()
			failIf(t, !errors.Is(err, cell.ErrRefused), "the dead one comes back: %v", err)
		}
		c.FailOver()
		equal(t, read(ctx, c), "before", "the contents are %q")
	}, calm, func(cfg *cell.Config) { cfg.ReplaceAfter = long })
}

// A spare that has another data directory than when it was added, or is gone, or leaves, takes nobody's place.
func TestSpareThatCannot(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		var waiting []<-chan error
		stop, cancel := context.WithCancel(ctx)
		for _, id := range []string{"r4", "r5"} {
			waiting = append(waiting, standsBy(t, stop, c, by, id))
		}
		noErr(t, client.ChangeMembers(ctx, by, client.MemberChange{Remove: "r5"}, func([]client.Member) {}))
		if err := <-waiting[1]; !errors.Is(err, cell.ErrRefused) {
			t.Errorf("a spare that was removed: %v", err)
		}
		cancel()
		if err := <-waiting[0]; err == nil {
			t.Error("a spare that was stopped has joined")
		}
		c.Kill("r3")
		time.Sleep(time.Minute)
		equal(t, membersAre(t, ctx, by), "r1, r2, r3, r4 without a vote spare", "the replicas are %s")
		joined := joins(ctx, c, "r4") // with its directory
		becomes(t, ctx, by, "r1, r2, r4", 0)
		if err := <-joined; err != nil {
			t.Fatal(fmt.Errorf("the spare came back: %w", err))
		}
	}, calm, func(cfg *cell.Config) { cfg.ReplaceAfter = 20 * time.Second })
}

// That a spare takes a place, which nobody asked for in that moment, is in the audit log once, as a change of the replicas that nobody called for, and why.
func TestSpareIsAudited(t *testing.T) {
	inAuditedCell(t, 3, func(t *testing.T, ctx context.Context, c *celltest.Cell, records func() []auditRecord) {
		root := as(t, ctx, c, "root")
		joined := standsBy(t, ctx, c, root, "r4")
		for _, r := range records() {
			failIf(t, r.Principal != "root", "before: %+v", r)
		}
		c.Kill("r3")
		becomes(t, ctx, root, "r1, r2, r4", 5*time.Second)
		noErr(t, <-joined)
		all := records()
		stopIf(t, len(all) != 1, "there are %+v", all)
		if r := all[0]; r.Event != "act" || r.Call != "ChangeMembers" || r.On != "r4 r4:7431 r3" || r.Code != "OK" || r.Principal+r.From+r.Message != "" || !strings.Contains(r.Reason, "r3 has not answered for 2") {
			t.Errorf("%+v", r)
		}
	}, calm, func(cfg *cell.Config) { cfg.ReplaceAfter = 20 * time.Second })
}

// published is what a cell has published, and whether it can.
type published struct {
	mu    sync.Mutex
	lists []string
	err   error
}

func (p *published) publish(ctx context.Context, what cell.Publication) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	words := []string{what.Cell}
	for _, m := range what.Replicas {
		words = append(words, m.ID+"="+m.Client)
	}
	for _, id := range what.Left {
		words = append(words, "-"+id)
	}
	p.lists = append(p.lists, strings.Join(words, " "))
	return p.err
}

// since returns how often something was published since the last call, and the last of it.
func (p *published) since() (n int, last string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n = len(p.lists); n > 0 {
		last = p.lists[n-1]
	}
	p.lists = nil
	return n, last
}

func (p *published) fails(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// A master publishes the replicas when it has become the master, when they have changed, and every five minutes; after a
// failure again and again, with longer pauses.
func TestPublish(t *testing.T) {
	var names published
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		want := func(what string, times int, list string) {
			t.Helper()
			if n, last := names.since(); n != times || list != "" && last != list {
				t.Errorf("%s: published %d times, the last is %q; want %d times, %q", what, n, last, times, list)
			}
		}
		const three = "local r1=r1:7421 r2=r2:7421 r3=r3:7421"
		time.Sleep(5 * time.Second)
		want("the first master", 1, three)
		time.Sleep(4 * time.Minute)
		want("nothing has changed", 0, "")
		time.Sleep(2 * time.Minute)
		want("after five minutes", 1, three)

		first := c.Master()
		second := map[string]string{"r1": "r2", "r2": "r1", "r3": "r1"}[first]
		for _, to := range []string{second, first} {
			noErr(t, c.Replica(c.Master()).Transfer(ctx, to))
			time.Sleep(5 * time.Second)
			want("the next master is "+to, 1, three)
		}

		names.fails(errors.New("no name server"))
		c.FailOver()
		time.Sleep(70 * time.Second) // 0, 5, 15, 35 seconds after the first
		want("the next master, whose name server fails", 4, three)
		names.fails(nil)
		time.Sleep(time.Minute)
		want("the name server is back", 1, three)

		old := others(3, "r3", c.Master())[0]
		replace(t, ctx, c, by, old, "r4")
		time.Sleep(5 * time.Second)
		now := strings.Replace(three, old+"="+old+":7421 ", "", 1) + " r4=r4:7421 -" + old
		if _, last := names.since(); last != now {
			t.Errorf("replaced: %q, want %q", last, now)
		}
	}, calm, func(cfg *cell.Config) { cfg.Publish = names.publish })
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
				must(operator.Transfer(ctx, "r4"))(t)
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
				equal(t, read(ctx, c), "after", "the contents are %q")
			})
		})
	}
}
