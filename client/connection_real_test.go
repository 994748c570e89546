//go:build linux

package client_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// With a real master, too, connections that fall silent cost no session, and no lock:
// neither one that is alone, nor those that share a connection.
func TestSilentConnectionToACell(t *testing.T) {
	for _, sessions := range []int{1, 8} {
		for phase := range 4 {
			t.Run(fmt.Sprint(sessions, " sessions, phase ", phase), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cell := celltest.Start(t, 1)
					wires := client.NewWires(cell.DialFrom("host"))
					var states atomic.Int32
					cfg := client.Config{Servers: cell.Servers(), Dialer: wires.Dial, Clock: celltest.Clock, OnState: func(client.StateChange) { states.Add(1) }}
					shared, err := client.Dial(t.Context(), cfg)
					if err != nil {
						t.Fatal(err)
					}
					var all []*client.Client
					var locks []*client.Lock
					for i := range sessions {
						c, err := shared.NewSession(t.Context(), cfg.Session())
						if err != nil {
							t.Fatal(err)
						}
						h, err := c.Open(t.Context(), fmt.Sprint("/ls/local/", i), client.OpenOptions{Write: true, Create: client.File})
						if err != nil {
							t.Fatal(err)
						}
						l, err := h.Acquire(t.Context(), api.Exclusive)
						if err != nil {
							t.Fatal(err)
						}
						all, locks = append(all, c), append(locks, l)
						time.Sleep(900 * time.Millisecond)
					}
					for range 3 {
						time.Sleep(20*time.Second + time.Duration(phase)*2*time.Second)
						wires.Silence("", false)
					}
					time.Sleep(20 * time.Second)
					if states.Load() > 0 {
						t.Errorf("%d changes of state", states.Load())
					}
					for i, l := range locks {
						if err := l.Err(); err != nil {
							t.Errorf("lock %d: %v", i, err)
						}
						if err := all[i].Close(t.Context()); err != nil {
							t.Error(err)
						}
					}
					_ = shared.Close() // it never fails
				})
			})
		}
	}
}
