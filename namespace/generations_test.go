package namespace_test

import (
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// A counter that went back must not make a lock's generation go back.
func TestLockGenerationNeverGoesBack(t *testing.T) {
	c := newCell(t)
	lock := c.create("/l", namespace.Spec{}).Ref()
	g := c.mustAcquire(lock, alice, api.Exclusive, 0)
	if _, err := c.tree.Close(lock, alice); err != nil {
		t.Fatal(err)
	}
	for _, next := range []api.Generation{0, g - 1, g, api.MaxGeneration + 1} {
		_, err := c.tree.Acquire(lock, namespace.Holder{Owner: bob}, api.Exclusive, func() api.Generation { return next })
		c.want(err, api.Corrupt)
	}
	if n := c.node("/l"); n.Lock != g || len(n.Holders) > 0 {
		t.Errorf("a refused claim has changed the lock to %+v", n)
	}
}

// The same holds for the generations of contents and ACL names.
func TestContentGenerationNeverGoesBack(t *testing.T) {
	c := newCell(t)
	before := c.create("/f", namespace.Spec{})
	for _, next := range []api.Generation{0, before.Content - 1, before.Content, api.MaxGeneration + 1} {
		draw := func() api.Generation { return next }
		_, err := c.tree.SetContents(before.Ref(), namespace.Write{Contents: []byte("x")}, draw)
		c.want(err, api.Corrupt)
		_, err = c.tree.SetACL(before.Ref(), api.ACL{Read: "r"}, nil, draw)
		c.want(err, api.Corrupt)
	}
	if c.node("/f") != before {
		t.Error("a refused change has changed the node")
	}
}
