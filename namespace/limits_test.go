package namespace_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// Commands from the log must obey the same limits as requests.
func TestLimits(t *testing.T) {
	c := newCell(t)
	deepest := api.Name("")
	for range api.MaxDepth {
		deepest += "/d"
		c.create(deepest, namespace.Spec{Kind: api.Directory})
	}
	longest := "/" + api.Name(strings.Repeat("n", api.MaxPath-1))
	file := c.create(longest, namespace.Spec{ACL: api.ACL{Read: strings.Repeat("r", api.MaxACLName)}}).Ref()
	holder := namespace.Holder{Owner: alice, Delay: api.MaxLockDelay, Reason: strings.Repeat("r", api.MaxReason)}
	if _, err := c.tree.Acquire(file, holder, api.Shared, c.drawGeneration); err != nil {
		t.Fatal(err)
	}
	if err := c.tree.Check(); err != nil {
		t.Fatal(err)
	}

	create := func(name api.Name, spec namespace.Spec, instance api.Generation) error {
		_, err := c.tree.Create(name, spec, instance)
		return err
	}
	join := func(h namespace.Holder) error {
		_, err := c.tree.Acquire(file, h, api.Shared, c.drawGeneration)
		return err
	}
	for what, err := range map[string]error{
		"depth":    create(deepest+"/d", namespace.Spec{Kind: api.File}, 99),
		"name":     create(longest+"n", namespace.Spec{Kind: api.File}, 99),
		"ACL":      create("/f", namespace.Spec{Kind: api.File, ACL: api.ACL{Change: strings.Repeat("r", api.MaxACLName+1)}}, 99),
		"instance": create("/f", namespace.Spec{Kind: api.File}, api.MaxGeneration+1),
		"reason":   join(namespace.Holder{Owner: bob, Reason: strings.Repeat("r", api.MaxReason+1)}),
		"delay":    join(namespace.Holder{Owner: bob, Delay: api.MaxLockDelay + 1}),
	} {
		if !errors.Is(err, api.InvalidArgument) {
			t.Errorf("above the limit of %s: %v, want InvalidArgument", what, err)
		}
	}
}
