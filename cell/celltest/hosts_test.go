package celltest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Each client is on the host of its name: the network and the clock of that alone are its own, and it is known by that name.
func TestHostsAreApart(t *testing.T) {
	celltest.Run(t, 1, func(t *testing.T, c *celltest.Cell) {
		ctx := t.Context()
		ann := c.Client("ann", func(cfg *client.Config) { cfg.Lease, cfg.Grace = 4*time.Second, 4*time.Second })
		ben, eve := c.Keep("ben"), c.Client("eve")
		holder := func() string {
			t.Helper()
			locks, err := eve.Cell().Locks(ctx, "")
			if err != nil || len(locks) != 1 || len(locks[0].Holders) != 1 {
				t.Fatalf("want one lock with one holder: %+v, %v", locks, err)
			}
			return locks[0].Holders[0].Principal
		}
		first, err := ann.Acquire(ctx, "/ls/local/a", client.LockDelay(0))
		if err != nil || holder() != "ann" {
			t.Fatal(err, holder())
		}
		c.Cut("ann")
		began := time.Now()
		err = ben.Do(ctx, func(session *client.Client) error {
			second, err := session.Acquire(ctx, "/ls/local/a")
			if took := time.Since(began); err != nil || took > 10*time.Second || first.Err() == nil || holder() != "ben" {
				t.Errorf("%s has it after %v, %v; the first: %v", holder(), took, err, first.Err())
				return err
			}
			c.Pause("ben")
			time.Sleep(time.Minute)
			c.Resume("ben")
			if second.Err() == nil {
				t.Error("a lock was held through a pause of a minute")
			}
			return nil
		})
		if err != nil || eve.Err() != nil {
			t.Error(err, eve.Err())
		}
	})
}

// Sessions are closed when their test ends, also of hosts that are cut off, and before the cell stops.
func TestSessionsEndWithTheirTest(t *testing.T) {
	var all []*client.Client
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 1)
		for _, host := range []string{"ann", "ben"} {
			all = append(all, c.Client(host))
		}
		c.Cut("ben")
	})
	for _, one := range all {
		if !errors.Is(one.Err(), api.SessionExpired) {
			t.Errorf("a session is left: %v", one.Err())
		}
	}
}

// Each host is cut off when it has written, and the next goes on.
func TestHostsOfThePage(t *testing.T) {
	celltest.Run(t, 1, func(t *testing.T, c *celltest.Cell) {
		for _, host := range []string{"web1", "web2"} {
			if _, err := c.Client(host).Put(t.Context(), "/ls/local/config", []byte(host)); err != nil {
				t.Error(err)
			}
			c.Cut(host)
		}
	})
}

// Two hosts want one lock, and the one that has it is cut off.
func ExampleCell_Client() {
	local, err := celltest.New(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer local.Close() // with the sessions
	ctx := context.Background()
	short := func(cfg *client.Config) { cfg.Lease = 2 * time.Second }
	ann, ben := local.Client("ann", short), local.Client("ben")
	first, err := ann.Acquire(ctx, "/ls/local/work", client.LockDelay(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	local.Cut("ann")
	second, err := ben.Acquire(ctx, "/ls/local/work")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ann knows that the lock is lost:", first.Err() != nil, "and ben has it:", second.Err() == nil)
	// Output:
	// ann knows that the lock is lost: true and ben has it: true
}
