package namespace_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// A copy is independent: a change of one is not visible in the other, however
// many handles hold a lock or have a node open.
func TestCopiesGoTheirOwnWays(t *testing.T) {
	c := newCell(t)
	file := c.create("/f", namespace.Spec{Ephemeral: true, Opener: alice}).Ref()
	for handle := range api.HandleID(20) {
		join := func(tree *namespace.Tree, session api.SessionID) string {
			by := namespace.Holder{Owner: namespace.Owner{Session: session, Handle: handle}}
			_, opened := tree.Open(file, by.Owner)
			_, acquired := tree.Acquire(file, by, api.Shared, c.drawGeneration)
			if err := errors.Join(opened, acquired); err != nil {
				t.Fatal(err)
			}
			return dump(*tree)
		}
		other := c.tree
		one := join(&c.tree, 2)
		join(&other, 3)
		if is := dump(c.tree); is != one {
			t.Fatalf("with %d handles, a tree changed with its copy\nfrom %s\nto   %s", handle, one, is)
		}
	}
}

// Many goroutines may read a copy while the tree changes; the race detector
// checks it.
func TestCopiesAreReadWhileTheTreeChanges(t *testing.T) {
	c := newCell(t)
	lock := c.create("/l", namespace.Spec{}).Ref()
	c.mustAcquire(lock, alice, api.Shared, time.Second)
	var readers sync.WaitGroup
	for i := range 50 {
		snapshot, was := c.tree, dump(c.tree)
		readers.Go(func() {
			if is := dump(snapshot); is != was {
				t.Errorf("snapshot %d changed\nfrom %s\nto   %s", i, was, is)
			}
		})
		c.create(api.Name(fmt.Sprintf("/f%d", i)), namespace.Spec{Ephemeral: true, Opener: bob})
		g := c.mustAcquire(lock, carol, api.Shared, time.Second)
		if _, err := c.tree.Release(lock, carol, g); err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 {
			for _, dying := range c.tree.DropSession(bob.Session, true, c.draw).Dying {
				c.tree.Remove(dying)
			}
		}
	}
	readers.Wait()
}
