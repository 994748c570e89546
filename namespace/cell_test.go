package namespace_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// cell is a tree and its counter, with helpers for tests of expected results.
type cell struct {
	*testing.T
	world
}

func newCell(t *testing.T) *cell { return &cell{T: t, world: *newWorld()} }

var (
	alice = namespace.Owner{Session: 1, Handle: 1}
	bob   = namespace.Owner{Session: 2, Handle: 1}
	carol = namespace.Owner{Session: 3, Handle: 1}
)

func (c *cell) create(name api.Name, spec namespace.Spec) *namespace.Node {
	c.Helper()
	if spec.Kind == 0 {
		spec.Kind = api.File
	}
	n, err := c.tree.Create(name, spec, c.drawGeneration())
	if err != nil {
		c.Fatal(err)
	}
	return n
}

func (c *cell) acquire(ref namespace.Ref, by namespace.Owner, mode api.LockMode, delay time.Duration) (api.Generation, error) {
	return c.tree.Acquire(ref, namespace.Holder{Owner: by, Delay: delay, Reason: "a test", SinceUnix: 7}, mode, c.drawGeneration)
}

func (c *cell) mustAcquire(ref namespace.Ref, by namespace.Owner, mode api.LockMode, delay time.Duration) api.Generation {
	c.Helper()
	g, err := c.acquire(ref, by, mode, delay)
	if err != nil {
		c.Fatal(err)
	}
	return g
}

func (c *cell) node(name api.Name) *namespace.Node {
	c.Helper()
	n, ok := c.tree.Get(name)
	if !ok {
		c.Fatalf("%q is gone", name)
	}
	return n
}

func (c *cell) want(err error, code api.Code) *api.Error {
	c.Helper()
	if api.CodeOf(err) != code {
		c.Fatalf("got %v, want %v", err, code)
	}
	var e *api.Error
	errors.As(err, &e)
	return e
}

func (c *cell) wantDropped(got, want namespace.Dropped) {
	c.Helper()
	if !slices.Equal(got.Free, want.Free) || !slices.Equal(got.Delayed, want.Delayed) || !slices.Equal(got.Dying, want.Dying) {
		c.Fatalf("released %+v, want %+v", got, want)
	}
}
