//go:build unix

package supervise

import (
	"encoding/json"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// control is the pipe of chubbyctl's orders, for one goroutine. Writes never block: if a stopped guardian has
// let the pipe fill up, further orders are kept.
type control struct {
	pipe    *os.File // does not block
	waiting []order  // the newest instants, each signal once, and the order to stop
}

// give sends an order, after pending ones. The closed pipe of reports shows a guardian's end.
func (c *control) give(o order) {
	c.waiting = slices.DeleteFunc(c.waiting, func(old order) bool {
		return old == o || old.KillAt != 0 && o.KillAt != 0
	})
	c.waiting = append(c.waiting, o)
	c.flush()
}

func (c *control) flush() {
	for len(c.waiting) > 0 && c.write(c.waiting[0]) {
		c.waiting = c.waiting[1:]
	}
}

// write tries to send an order, and reports whether it is done with.
func (c *control) write(o order) bool {
	line, err := json.Marshal(o)
	if err != nil {
		return true
	}
	raw, err := c.pipe.SyscallConn()
	if err != nil {
		return true
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		// A pipe takes a line of this length whole or not at all.
		for failed = unix.EINTR; failed == unix.EINTR; {
			_, failed = unix.Write(int(fd), append(line, '\n'))
		}
		//mutant: return failed != unix.EAGAIN
		return true // unless there was no room
	})
	return err != nil || failed != unix.EAGAIN
}

func (c *control) close() { c.pipe.Close() }
