package cell_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// published is what a cell has published, and whether it can.
type published struct {
	mu    sync.Mutex
	lists []string
	err   error
}

func (p *published) publish(ctx context.Context, what cell.Publication) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	words := []string{what.Cell}
	for _, m := range what.Replicas {
		words = append(words, m.ID+"="+m.Client)
	}
	for _, id := range what.Left {
		words = append(words, "-"+id)
	}
	p.lists = append(p.lists, strings.Join(words, " "))
	return p.err
}

// since returns how often something was published since the last call, and the last of it.
func (p *published) since() (n int, last string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n = len(p.lists); n > 0 {
		last = p.lists[n-1]
	}
	p.lists = nil
	return n, last
}

func (p *published) fails(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// A master publishes the replicas when it has become the master, when they have changed, and every five minutes; after a
// failure again and again, with longer pauses.
func TestPublish(t *testing.T) {
	var names published
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		want := func(what string, times int, list string) {
			t.Helper()
			if n, last := names.since(); n != times || list != "" && last != list {
				t.Errorf("%s: published %d times, the last is %q; want %d times, %q", what, n, last, times, list)
			}
		}
		const three = "local r1=r1:7421 r2=r2:7421 r3=r3:7421"
		time.Sleep(5 * time.Second)
		want("the first master", 1, three)
		time.Sleep(4 * time.Minute)
		want("nothing has changed", 0, "")
		time.Sleep(2 * time.Minute)
		want("after five minutes", 1, three)

		first := c.Master()
		second := map[string]string{"r1": "r2", "r2": "r1", "r3": "r1"}[first]
		for _, to := range []string{second, first} {
			noErr(t, c.Replica(c.Master()).Transfer(ctx, to))
			time.Sleep(5 * time.Second)
			want("the next master is "+to, 1, three)
		}

		names.fails(errors.New("no name server"))
		c.FailOver()
		time.Sleep(70 * time.Second) // 0, 5, 15, 35 seconds after the first
		want("the next master, whose name server fails", 4, three)
		names.fails(nil)
		time.Sleep(time.Minute)
		want("the name server is back", 1, three)

		joined := joins(ctx, c, "r4")
		time.Sleep(time.Second)
		old := "r1"
		if c.Master() == old {
			old = "r2"
		}
		if err := client.ChangeMembers(ctx, by, client.MemberChange{Add: "r4", Raft: "r4:7431", Remove: old}, func([]client.Member) {}); err != nil {
			t.Fatal(err)
		}
		noErr(t, <-joined)
		time.Sleep(5 * time.Second)
		now := strings.Replace(three, old+"="+old+":7421 ", "", 1) + " r4=r4:7421 -" + old
		if _, last := names.since(); last != now {
			t.Errorf("replaced: %q, want %q", last, now)
		}
	}, func(cfg *cell.Config) { cfg.Publish = names.publish })
}
