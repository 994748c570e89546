package client

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slowConn takes its time to write.
type slowConn struct {
	net.Conn
	rate *atomic.Int64 // bytes a second; 0 is no limit
}

func (c *slowConn) Write(p []byte) (int, error) {
	if rate := c.rate.Load(); rate > 0 {
		time.Sleep(time.Duration(len(p)) * time.Second / time.Duration(rate))
	}
	return c.Conn.Write(p)
}

// However many Opens are settled at a time that were done and left without an answer, and
// whatever they bring along, all sessions are kept alive, also over a slow network.
func TestKeepAlivesWaitForNoSettledOpen(t *testing.T) {
	for _, size := range []int{maxSmallOpen, maxSmallOpen + 1, largeRequest} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				var rate atomic.Int64
				cfg := f.config()
				dial := cfg.Dialer
				cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
					conn, err := dial(ctx, address)
					return &slowConn{conn, &rate}, err
				}
				cell := f.dialled(cfg)
				var clients []*Client
				var changes atomic.Int64
				for range maxCleanupCalls + maxCleanupCalls/2 {
					s := cfg.Session()
					s.OnState = func(StateChange) { changes.Add(1) }
					c, err := cell.NewSession(t.Context(), s)
					if err != nil {
						t.Fatal(err)
					}
					clients = append(clients, c)
				}
				f.script(func(s seen) verb {
					if s.method != "Open" {
						return nil
					}
					return mute
				})
				within, leave := context.WithTimeout(t.Context(), lateAfter)
				defer leave()
				var opens sync.WaitGroup
				for _, c := range clients {
					opens.Go(func() {
						_, _ = c.Open(within, "/ls/foo/x", OpenOptions{Write: true, Create: File, Contents: make([]byte, size)})
					})
				}
				time.Sleep(lateAfter * 9 / 10)
				rate.Store(125_000)
				f.script(nil)
				opens.Wait()
				time.Sleep(40 * time.Second)
				failed := uint64(0)
				for _, c := range clients {
					failed += c.Stats().KeepAlivesFailed
				}
				if failed > 0 || changes.Load() > 0 {
					t.Errorf("%d KeepAlives failed, %d changes of state", failed, changes.Load())
				}
				rate.Store(0)
				time.Sleep(20 * time.Second) // what is being written has been
				synctest.Wait()
				for _, c := range clients {
					closeClient(t, c)
				}
				_ = cell.Close() // it never fails
			})
		})
	}
}
