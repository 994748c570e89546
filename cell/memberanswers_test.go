package cell_test

import (
	"context"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// The answers to a change of the replicas are lost for a while, in which the change goes on. The operator gets the answer that the log has
// given: it was done.
func TestChangeOfMembersIsAnsweredOnce(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		joined := joins(ctx, c, "r4")
		time.Sleep(time.Second)
		until := time.Now().Add(5 * time.Second)
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true, Dialer: c.Lossy("operator", func(method string) bool {
			return method == "/chubby.v1.Chubby/ChangeMembers" && time.Now().Before(until)
		})})
		if err := client.ChangeMembers(ctx, by, client.MemberChange{Add: "r4", Raft: "r4:7431"}, nil); err != nil {
			t.Errorf("it was done, and its author hears: %v", err)
		}
		if err := <-joined; err != nil {
			t.Fatal(err)
		}
	})
}
