package cell_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// membersAre returns the replicas of a cell in one line.
func membersAre(t *testing.T, ctx context.Context, c *client.Client) string {
	t.Helper()
	members, err := c.Cell().Members(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, m := range members {
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
		if ctx.Err() != nil || time.Since(begun) > notBefore+2*time.Minute {
			t.Fatalf("the replicas are %s, want %s", got, want)
		}
		time.Sleep(time.Second)
	}
	if took := time.Since(begun); took < notBefore {
		t.Errorf("the replicas were %s after %v", want, took)
	}
}

// A spare stands by until a replica has been dead for long, by itself takes its place, and holds what it held. One that comes back in time stays; fail-overs
// do not begin the time anew.
func TestSpare(t *testing.T) {
	const long = time.Minute
	inCellOf(t, 5, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		write(t, ctx, c, "before")
		joined := joins(ctx, c, "r6")
		time.Sleep(time.Second)
		add := client.MemberChange{Add: "r6", Raft: "r6:7431", Spare: true}
		if err := client.ChangeMembers(ctx, by, add, func([]client.Member) {}); err != nil {
			t.Fatal(err)
		}
		if err := client.ChangeMembers(ctx, by, add, nil); !errors.Is(err, api.Exists) {
			t.Errorf("added again: %v", err)
		}
		add.Remove = "r1"
		if err := client.ChangeMembers(ctx, by, add, nil); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("a spare that replaces somebody: %v", err)
		}
		const standsBy = "r1, r2, r3, r4, r5, r6 spare"
		becomes(t, ctx, by, standsBy, 0) // the replica that is asked may be behind
		status, err := by.Cell().Status(ctx)
		if err != nil || len(status.Replicas) != 5 {
			t.Errorf("the status is %+v, %v", status, err)
		}
		dead := "r1"
		if c.Master() == dead {
			dead = "r2"
		}
		c.Kill(dead)
		time.Sleep(long - 20*time.Second)
		c.Restart(dead)
		time.Sleep(long + 30*time.Second)
		if got := membersAre(t, ctx, by); got != standsBy {
			t.Errorf("a replica came back in time, and the replicas are %s", got)
		}
		c.Kill(dead)
		time.Sleep(long - 25*time.Second)
		if got := membersAre(t, ctx, by); got != standsBy {
			t.Errorf("the spare did not stand by: %s", got)
		}
		c.Restart(c.FailOver())
		want := strings.Replace("r1, r2, r3, r4, r5, r6", dead+", ", "", 1)
		becomes(t, ctx, by, want, 5*time.Second)
		if err := <-joined; err != nil {
			t.Fatal(err)
		}
		if err := c.TryRestart(ctx, dead); err == nil {
			<-c.Replica(dead).Done()
			err = c.Replica(dead).Err()
			if !errors.Is(err, cell.ErrRefused) {
				t.Errorf("the dead one comes back: %v", err)
			}
		}
		c.FailOver()
		if got := read(ctx, c); got != "before" {
			t.Errorf("the contents are %q", got)
		}
	}, func(cfg *cell.Config) { cfg.ReplaceAfter = long })
}

// A spare that has another data directory than when it was added, or is gone, or leaves, takes nobody's place.
func TestSpareThatCannot(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		var waiting []<-chan error
		stop, cancel := context.WithCancel(ctx)
		for i, id := range []string{"r4", "r5"} {
			waiting = append(waiting, joins(stop, c, id))
			time.Sleep(time.Second)
			if err := client.ChangeMembers(ctx, by, client.MemberChange{Add: id, Raft: id + ":7431", Spare: true}, nil); err != nil {
				t.Fatal(i, err)
			}
		}
		if err := client.ChangeMembers(ctx, by, client.MemberChange{Remove: "r5"}, func([]client.Member) {}); err != nil {
			t.Fatal(err)
		}
		if err := <-waiting[1]; !errors.Is(err, cell.ErrRefused) {
			t.Errorf("a spare that was removed: %v", err)
		}
		cancel()
		if err := <-waiting[0]; err == nil {
			t.Error("a spare that was stopped has joined")
		}
		c.Kill("r3")
		time.Sleep(time.Minute)
		if got := membersAre(t, ctx, by); got != "r1, r2, r3, r4 spare" {
			t.Errorf("the replicas are %s", got)
		}
		joined := joins(ctx, c, "r4") // with its directory
		becomes(t, ctx, by, "r1, r2, r4", 0)
		if err := <-joined; err != nil {
			t.Fatal(fmt.Errorf("the spare came back: %w", err))
		}
	}, func(cfg *cell.Config) { cfg.ReplaceAfter = 20 * time.Second })
}

// That a spare takes a place, which nobody asked for in that moment, is in the audit log once, as a change of the replicas that nobody called for, and why.
func TestSpareIsAudited(t *testing.T) {
	inAuditedCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell, records func() []auditRecord) {
		root := as(t, ctx, c, "root")
		joined := joins(ctx, c, "r4")
		time.Sleep(time.Second)
		if err := client.ChangeMembers(ctx, root, client.MemberChange{Add: "r4", Raft: "r4:7431", Spare: true}, nil); err != nil {
			t.Fatal(err)
		}
		for _, r := range records() {
			if r.Principal != "root" {
				t.Errorf("before: %+v", r)
			}
		}
		c.Kill("r3")
		becomes(t, ctx, root, "r1, r2, r4", 5*time.Second)
		if err := <-joined; err != nil {
			t.Fatal(err)
		}
		all := records()
		if len(all) != 1 {
			t.Fatalf("there are %+v", all)
		}
		if r := all[0]; r.Event != "act" || r.Call != "ChangeMembers" || r.On != "r4 r4:7431 r3" || r.Code != "OK" || r.Principal+r.From+r.Message != "" || !strings.Contains(r.Reason, "r3 has not answered for 2") {
			t.Errorf("%+v", r)
		}
	}, func(cfg *cell.Config) { cfg.ReplaceAfter = 20 * time.Second })
}
