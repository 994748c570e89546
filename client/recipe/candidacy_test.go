package recipe

import (
	"context"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/client"
)

const office = "/ls/local/primary"

// candidacy is a Campaign in the background.
type candidacy struct {
	*client.Client
	name string
	stop context.CancelFunc
	won  chan *Primary // receives the primary, or is closed
	err  error         // to be read when won is closed
}

// campaign starts a candidate on a host of its name. Its value is the name.
func (w *world) campaign(name string, o CampaignOptions) *candidacy {
	w.T.Helper()
	return w.campaignOf(w.Client(name), name, o)
}

func (w *world) campaignOf(c *client.Client, name string, o CampaignOptions) *candidacy {
	ctx, stop := context.WithCancel(w.Ctx)
	k := &candidacy{Client: c, name: name, stop: stop, won: make(chan *Primary, 1)}
	o.Name, o.Value = name, []byte(name)
	w.T.Cleanup(stop)
	go func() {
		defer close(k.won)
		var p *Primary
		if p, k.err = Campaign(ctx, k.Client, office, o); p != nil {
			k.won <- p
		}
	}()
	return k
}

// primary returns the primary that a candidate is now.
func (w *world) primary(k *candidacy) *Primary {
	w.T.Helper()
	select {
	case p := <-k.won:
		if p == nil {
			w.T.Fatalf("%s: %v", k.name, k.err)
		}
		if value := w.Cat(k.Client, office); value != k.name {
			w.T.Fatalf("%s has won, and the file says %q", k.name, value)
		}
		return p
	case <-time.After(time.Second):
		w.T.Fatalf("%s is not the primary", k.name)
		return nil
	}
}

// waits checks that a candidate is still one.
func (w *world) waits(all ...*candidacy) {
	w.T.Helper()
	for _, k := range all {
		select {
		case p := <-k.won:
			w.T.Fatalf("%s does not wait: %v %v", k.name, p, k.err)
		default:
		}
	}
}

// queue returns how many wait for the lock.
func (w *world) queue(c *client.Client) int {
	w.T.Helper()
	x := ok(c.Cell().Explain(w.Ctx, office))(w)
	return len(x.Lock.Waiters)
}

// wasAsked reports whether a primary is asked to resign.
func wasAsked(p *Primary) bool {
	synctest.Wait()
	select {
	case <-p.Asked():
		return true
	default:
		return false
	}
}
