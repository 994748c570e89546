package cell_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// An operator gives up a restore, and the answer is lost; meanwhile another begins one. That one is not given up, and the operator hears that
// the first one was.
func TestGivingUpEndsOneRestore(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		hung := dial(t, ctx, c, "hung", client.Config{NoCache: true})
		next := dial(t, ctx, c, "next", client.Config{NoCache: true})
		begin := func(by *client.Client, begun chan struct{}, goOn chan struct{}) <-chan error {
			source, ended := sourceOf(takeBackup(t, ctx, by)), make(chan error, 1)
			parts := source.Parts
			source.Parts = func(yield func([]byte, error) bool) {
				close(begun)
				<-goOn
				parts(yield)
			}
			go func() {
				_, err := client.Restore(ctx, by, source, nil)
				ended <- err
			}()
			<-begun
			return ended
		}
		leave, goOn := make(chan struct{}), make(chan struct{})
		first := begin(hung, make(chan struct{}), leave)
		var second <-chan error
		var lost atomic.Bool
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true, Dialer: c.Lossy("operator", func(method string) bool {
			if method != "/chubby.v1.Chubby/Restore" || lost.Swap(true) {
				return false
			}
			second = begin(next, make(chan struct{}), goOn)
			return true
		})})
		if err := client.GiveUpRestore(ctx, operator.Cell()); err != nil {
			t.Errorf("the restore was given up, and the operator hears: %v", err)
		}
		close(goOn)
		if err := <-second; err != nil {
			t.Errorf("the restore that began later: %v", err)
		}
		close(leave)
		if err := <-first; !errors.Is(err, api.SessionExpired) { // the later one has ended it
			t.Errorf("the restore that was given up: %v", err)
		}
	})
}
