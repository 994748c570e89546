//go:build linux

package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Who follows a change of the replicas is told when another operator takes it back, also if the next change has begun by then.
func TestChangeThatIsTakenBack(t *testing.T) {
	inCell(t, 3, func(ctx context.Context, cell *celltest.Cell, dial func(string, ...func(*client.Config)) *client.Client) {
		by, another := dial("operator"), dial("another")
		others := []string{"r1", "r2", "r3"}
		for i, id := range others {
			if id == cell.Master() {
				others = append(others[:i], others[i+1:]...)
				break
			}
		}
		removed, cut := others[0], others[1]
		follow := func(change client.MemberChange) <-chan error {
			ended := make(chan error, 1)
			decided := make(chan struct{}, 1)
			go func() {
				ended <- client.ChangeMembers(ctx, by, change, func([]client.Member) {
					select {
					case decided <- struct{}{}:
					default:
					}
				})
			}()
			select {
			case <-decided:
			case err := <-ended:
				t.Fatalf("%+v: %v", change, err)
			}
			return ended
		}
		takenBack := func(ended <-chan error, text string) {
			t.Helper()
			time.Sleep(5 * time.Second)
			select {
			case err := <-ended:
				if !errors.Is(err, api.Cancelled) || !strings.Contains(err.Error(), "took the change back: replica "+text) {
					t.Errorf("a change that was taken back: %v, want %q", err, text)
				}
			default:
				t.Errorf("a change that was taken back is followed on: %s", text)
			}
		}
		act := func(change client.MemberChange, progress func([]client.Member)) {
			t.Helper()
			if err := client.ChangeMembers(ctx, another, change, progress); err != nil {
				t.Fatalf("%+v: %v", change, err)
			}
		}

		joined := make(chan error, 1)
		go func() { joined <- cell.Join(ctx, "r4") }()
		time.Sleep(time.Second)
		replacing := follow(client.MemberChange{Add: "r4", Raft: "r4:7431", Remove: removed})
		cell.Cut("r4")
		time.Sleep(10 * time.Second)
		act(client.MemberChange{Remove: "r4"}, func([]client.Member) {})
		takenBack(replacing, removed+" stays")
		cell.Heal("r4")
		<-joined

		removing := follow(client.MemberChange{Remove: removed})
		cell.Kill(cut) // before the master looks again
		time.Sleep(10 * time.Second)
		act(client.MemberChange{Keep: removed}, func([]client.Member) {})
		act(client.MemberChange{Remove: cut}, nil)
		takenBack(removing, removed+" stays")
		if list, err := another.Cell().Members(ctx); err != nil || len(list) != 2 {
			t.Errorf("in the end there are %+v, %v", list, err)
		}
	})
}
