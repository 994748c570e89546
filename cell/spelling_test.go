package cell_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

// Two programs that mean one lock have one, also where one of them has its name from a file system that decomposes names.
func TestOneVisibleNameIsOneNode(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "a", client.Config{})
		const decomposed = "/ls/local/cafe\u0301"
		held := acquire(t, ctx, open(t, ctx, cl, "/ls/local/caf\u00e9", 0))
		for what, create := range map[string]func() error{
			"Acquire":  func() error { _, err := cl.Acquire(ctx, decomposed, client.Try()); return err },
			"Put":      func() error { _, err := cl.Put(ctx, decomposed, nil); return err },
			"MkdirAll": func() error { return cl.MkdirAll(ctx, decomposed) },
			"Txn":      func() error { _, err := cl.Txn().Put(decomposed, nil).Commit(ctx); return err },
			"a member": func() error { _, err := recipe.Announce(ctx, cl, decomposed, "a", nil); return err },
		} {
			if err := create(); !errors.Is(err, api.InvalidPath) || !strings.Contains(err.Error(), `"caf\u00e9"`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, _, err := cl.Get(ctx, decomposed); !errors.Is(err, api.NotFound) {
			t.Errorf("Get: %v", err)
		}
		if err := held.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}
