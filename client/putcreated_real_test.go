package client_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A Put that creates a file, and whose first answer is lost, returns the generation of its own contents, also if another has
// written meanwhile: a Put on the condition of that generation does not overwrite what the other has written.
func TestPutThatCreatesReturnsItsOwnGeneration(t *testing.T) {
	for name, options := range map[string][]client.WriteOption{"without a condition": nil, "if absent": {client.IfGeneration(0)}} {
		t.Run(name, func(t *testing.T) {
			celltest.Run(t, 3, func(t *testing.T, cell *celltest.Cell) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				const path = "/ls/local/f"
				other := cell.Client("other")
				var armed atomic.Bool
				written := make(chan api.Stat, 1)
				dial := cell.Lossy("one", func(method string) bool {
					if !strings.HasSuffix(method, "/Open") || !armed.CompareAndSwap(true, false) {
						return false
					}
					stat, err := other.Put(ctx, path, []byte("the other's"))
					if err != nil {
						t.Error(err)
					}
					written <- stat
					return true
				})
				one := cell.Client("one", func(cfg *client.Config) { cfg.Dialer = dial })
				armed.Store(true)
				own, err := one.Put(ctx, path, []byte("one"), options...)
				if err != nil {
					t.Fatal(err)
				}
				if theirs := <-written; own.Size != len("one") || own.Content != own.Instance || own.Content >= theirs.Content {
					t.Errorf("Put returned %+v; what another has written since is %+v", own, theirs)
				}
				_, err = one.Put(ctx, path, []byte("one, again"), client.IfGeneration(own.Content))
				wants(t, "a Put on the condition that nothing was written since", err, api.GenerationMismatch)
			})
		})
	}
}

// CreatedStat is of what Open has created, and not of what is there when it is asked.
func TestCreatedStat(t *testing.T) {
	celltest.Run(t, 1, func(t *testing.T, cell *celltest.Cell) {
		ctx := t.Context()
		one, other := cell.Client("one"), cell.Client("other")
		opening := client.OpenOptions{Write: true, Create: client.File, Contents: []byte("one")}
		h, err := one.Open(ctx, "/ls/local/f", opening)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Put(ctx, "/ls/local/f", []byte("the other's")); err != nil {
			t.Fatal(err)
		}
		if stat, ok := h.CreatedStat(); !ok || stat.Size != len("one") || stat.Content != stat.Instance {
			t.Errorf("of a file that was created: %+v, %v", stat, ok)
		}
		h, err = one.Open(ctx, "/ls/local/f", opening)
		if err != nil {
			t.Fatal(err)
		}
		if stat, ok := h.CreatedStat(); ok || stat != (api.Stat{}) {
			t.Errorf("of a file that was there: %+v, %v", stat, ok)
		}
	})
}
