package frames

import (
	"bytes"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// writersConn notes which goroutines write.
type writersConn struct {
	net.Conn
	mu  sync.Mutex
	ids map[string]int
}

func (c *writersConn) Write(p []byte) (int, error) {
	var stack [64]byte
	id, _, _ := bytes.Cut(stack[:runtime.Stack(stack[:], false)], []byte(" ["))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[string(id)]++
	return len(p), nil
}

// The writes of a link are made by one goroutine, which stays and keeps its stack, and ends when the outlet is closed.
func TestOneGoroutineWritesForALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if the goroutine does not end
		conn := &writersConn{ids: map[string]int{}}
		var pool buffers
		o := outlet{conn: conn, clock: startStopwatch(), pool: &pool, wake: newWake()}
		for range 5 {
			frame := pool.get(8)
			frame.b = append(frame.b, "message"...)
			if _, write, _ := o.enqueue(frame, false); write {
				o.write()
			}
			synctest.Wait()
		}
		if len(conn.ids) != 1 {
			t.Errorf("goroutines wrote as often as %v; want one", conn.ids)
		}
		o.close()
		o.close()
		o.running.Wait()
		if _, _, open := o.enqueue(pool.get(1), false); open {
			t.Error("it takes more after its end")
		}
	})
}
