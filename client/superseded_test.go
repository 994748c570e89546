package client

import (
	"context"
	"testing"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// A call that is about to be sent when another master is found does not go to the
// one before, which may never answer.
func TestCallIsNotSentToASupersededMaster(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		before, err := c.finder.find(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !c.finder.follow(before, "b:1") {
			t.Fatal("nobody followed")
		}
		sent := false
		e, _ := c.finder.attempt(t.Context(), call{attempt: func(ctx context.Context, _ *target, _ *chubbypb.Caller) error {
			sent = true
			<-ctx.Done()
			return ctx.Err()
		}}, before, nil)
		if sent || e == nil || judge(e) != again {
			t.Errorf("sent %v: %v", sent, e)
		}
		closeClient(t, c)
	})
}
