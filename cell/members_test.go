package cell_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/session"
)

// joins starts a replica that joins the cell; the channel has the result of its start.
func joins(ctx context.Context, c *celltest.Cell, id string) <-chan error {
	joined := make(chan error, 1)
	go func() { joined <- c.Join(ctx, id) }()
	return joined
}

// replace puts a new replica in the place of another, and waits until that is complete.
func replace(t *testing.T, ctx context.Context, c *celltest.Cell, by *client.Client, id, with string) {
	t.Helper()
	joined := joins(ctx, c, with)
	var last []client.Member
	for { // until it waits
		err := client.ChangeMembers(ctx, by, client.MemberChange{Add: with, Raft: with + ":7431", Remove: id}, func(now []client.Member) { last = now })
		if err == nil {
			break
		}
		if !errors.Is(err, api.Unavailable) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	noErr(t, <-joined)
	for _, m := range last {
		if m.ID == id || m.Phase != client.SpareMember && (!m.Voter || m.Phase != "") {
			t.Errorf("after %s was replaced by %s: %+v", id, with, last)
		}
	}
}

// Each replica of a cell is replaced by a new one, one of them dead, one the master, while a client holds a lock. No replica of before
// is left, and the client, which was configured with those, goes on over a fail-over.
func TestEveryReplicaIsReplaced(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		servers := c.Servers()
		holder := dial(t, ctx, c, "holder", client.Config{Servers: servers})
		lock := acquire(t, ctx, open(t, ctx, holder, "/ls/local/lock", 0))
		operator := dial(t, ctx, c, "operator", client.Config{Servers: servers, NoCache: true})
		write(t, ctx, c, "before")
		c.Kill("r1")
		replace(t, ctx, c, operator, "r1", "r4")
		master := c.Master()
		replace(t, ctx, c, operator, "r2", "r5")
		replace(t, ctx, c, operator, "r3", "r6")
		for _, id := range []string{"r2", "r3"} {
			r := c.Replica(id)
			<-r.Done()
			if err := r.Err(); !errors.Is(err, cell.ErrRefused) || !strings.Contains(err.Error(), "was removed from the cell") {
				t.Errorf("%s, which was removed: %v (the master was %s)", id, err, master)
			}
			c.Kill(id)
		}
		for range 3 {
			killed := c.FailOver()
			open(t, ctx, operator, "/ls/local/lock", 0) // all servers that it was configured with are dead, and so is the last master
			c.Restart(killed)
		}
		equal(t, read(ctx, c), "before", "the contents are %q")
		report(t, lock.Err(), "the lock")
		if _, err := open(t, ctx, operator, "/ls/local/lock", 0).TryAcquire(ctx, api.Exclusive); !errors.Is(err, api.LockHeld) {
			t.Errorf("the lock of another: %v", err)
		}
		for _, id := range []string{"r1", "r2"} {
			if err := c.TryRestart(ctx, id); err == nil { // it does not know yet
				<-c.Replica(id).Done()
				err = c.Replica(id).Err()
				failIf(t, !errors.Is(err, cell.ErrRefused), "%s comes back: %v", id, err)
				c.Kill(id)
			}
		}
	})
}

// A client whose calls go to one master all the time hears of the replicas that have come meanwhile: when that master dies, all that
// it was configured with are gone.
func TestClientsHearOfNewReplicas(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		holder := dial(t, ctx, c, "holder", client.Config{Servers: c.Servers()})
		lock := acquire(t, ctx, open(t, ctx, holder, "/ls/local/lock", 0))
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		master := c.Master()
		for i, with := range []string{"r4", "r5"} {
			id := others(3, master)[i]
			replace(t, ctx, c, operator, id, with)
			c.Kill(id)
		}
		if now := c.Master(); now != master {
			t.Fatalf("%s is the master, and %s was", now, master)
		}
		time.Sleep(session.Due(holder.Lease())) // until a KeepAlive has been answered
		c.FailOver()
		open(t, ctx, holder, "/ls/local/lock", 0)
		report(t, lock.Err())
	})
}

// A change survives the masters that see to it: each is killed before the change is complete.
func TestChangeSurvivesMasters(t *testing.T) {
	inCellOf(t, 5, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		joined := joins(ctx, c, "r6")
		time.Sleep(time.Second)
		noErr(t, client.ChangeMembers(ctx, by, client.MemberChange{Add: "r6", Raft: "r6:7431", Remove: "r1"}, nil))
		for range 4 {
			time.Sleep(150 * time.Millisecond)
			if killed := c.FailOver(); killed != "r1" {
				c.Restart(killed)
			}
		}
		noErr(t, <-joined)
		for {
			members := must(by.Cell().Members(ctx))(t)
			var ids []string
			for _, m := range members {
				ids = append(ids, fmt.Sprint(m.ID, m.Voter, m.Phase))
			}
			if strings.Join(ids, " ") == "r2true r3true r4true r5true r6true" {
				return
			}
			if ctx.Err() != nil {
				t.Fatal(ids)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// What cannot be is refused, with the reason, and changes nothing.
func TestChangesOfMembersAreRefused(t *testing.T) {
	dir := t.TempDir()
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		for _, one := range []struct {
			change client.MemberChange
			code   error
			text   string
		}{
			{client.MemberChange{}, api.InvalidArgument, "name a replica"},
			{client.MemberChange{Add: "r4"}, api.InvalidArgument, "raft address"},
			{client.MemberChange{Add: "r 4", Raft: "r4:1"}, api.InvalidArgument, "cannot be a replica's id"},
			{client.MemberChange{Remove: "r4"}, api.NotFound, "has no replica r4"},
			{client.MemberChange{Add: "r1", Raft: "r1:7431"}, api.Exists, "never used again"},
			{client.MemberChange{Add: "r4", Raft: "r3:7431"}, api.Unavailable, "--join"},
			{client.MemberChange{Add: "r4", Raft: "nowhere:7431"}, api.Unavailable, "--join"},
		} {
			bound, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := client.ChangeMembers(bound, by, one.change, nil)
			cancel()
			if !errors.Is(err, one.code) || !strings.Contains(err.Error(), one.text) {
				t.Errorf("%+v: %v; want %v, %q", one.change, err, one.code, one.text)
			}
		}
		members, err := by.Cell().Members(ctx)
		if err != nil || len(members) != 3 {
			t.Error(members, err)
		}
		c.Kill("r3")
		noErr(t, os.RemoveAll(dir+"/r3"))
		if err := c.Join(ctx, "r3"); !errors.Is(err, cell.ErrRefused) || !strings.Contains(err.Error(), "no ID is used twice") {
			t.Errorf("a replica that lost its disk joins under its old id: %v", err)
		}
	}, func(cfg *cell.Config) { cfg.Data = filepath.Join(dir, cfg.ID) })
}

// With certificates a replica joins by its own, and nobody joins by that of another.
func TestJoinNeedsACertificate(t *testing.T) {
	inTLSCell(t, 3, func(t *testing.T, ctx context.Context, c tlsCell) {
		by := dial(t, ctx, c.Cell, "operator", client.Config{TLS: c.clients.client("ops"), NoCache: true})
		stop, cancel := context.WithCancel(ctx)
		stranger := joins(stop, c.Cell, "stranger") // its certificate is of another authority
		time.Sleep(time.Second)
		bound, end := context.WithTimeout(ctx, 5*time.Second)
		defer end()
		if err := client.ChangeMembers(bound, by, client.MemberChange{Add: "stranger", Raft: "stranger:7431"}, nil); !errors.Is(err, api.Unavailable) {
			t.Errorf("a replica with a certificate of another authority is added: %v", err)
		}
		cancel()
		if err := <-stranger; err == nil {
			t.Error("a stranger has joined")
		}
		replace(t, ctx, c.Cell, by, "r3", "r4")
		acquire(t, ctx, open(t, ctx, by, "/ls/local/lock", 0))
	}, func(cfg *cell.Config) {
		if cfg.ID == "stranger" {
			other := newAuthority(t)
			cfg.PeerTLS = other.put(other.IssueReplica(certs.Replica{Cell: "local", ID: cfg.ID}, time.Hour))
		}
	})
}

// A replica that does not catch up gets no vote, and can be given up: a majority must not need one that holds nothing.
func TestNewcomerGetsNoVoteBeforeItHoldsTheLog(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		stop, cancel := context.WithCancel(ctx)
		defer cancel()
		for _, id := range []string{"r4", "r5"} {
			joined := joins(stop, c, id)
			time.Sleep(time.Second)
			noErr(t, client.ChangeMembers(ctx, by, client.MemberChange{Add: id, Raft: id + ":7431"}, nil))
			c.Pause(id)
			time.Sleep(20 * time.Second)
			equal(t, membersAre(t, ctx, by), "r1, r2, r3, "+id+" without a vote joining", "the replicas are %s")
			if id == "r4" { // it is given up
				noErr(t, client.ChangeMembers(ctx, by, client.MemberChange{Remove: id}, nil))
				becomes(t, ctx, by, "r1, r2, r3", 0)
				c.Resume(id)
				cancel()
				<-joined
				stop = ctx
				continue
			}
			c.Resume(id)
			becomes(t, ctx, by, "r1, r2, r3, r5", 0)
			report(t, <-joined)
			for _, m := range must(by.Cell().Members(ctx))(t) {
				failIf(t, m.Waits != "", "it has joined, and %s waits: %s", m.ID, m.Waits)
			}
		}
	})
}

// A replica stays as long as those without it were no majority.
func TestNobodyLeavesWithoutAMajority(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		noErr(t, client.ChangeMembers(ctx, by, client.MemberChange{Remove: "r3"}, nil))
		c.Kill("r2") // before the master looks at the roster
		time.Sleep(20 * time.Second)
		equal(t, membersAre(t, ctx, by), "r1, r2, r3 leaving", "the replicas are %s")
		write(t, ctx, c, "two of three")
		c.Restart("r2")
		becomes(t, ctx, by, "r1, r2", 0)
	})
}
