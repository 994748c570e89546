//go:build unix

package supervise

import (
	"encoding/json"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// control is the pipe by which chubbyctl gives its orders. Writing to it never blocks,
// because a guardian that is stopped does not read, and the pipe fills up: orders that
// find no room are kept. It belongs to one goroutine.
type control struct {
	pipe    *os.File // does not block
	waiting []order  // found no room: the newest instants, each signal once, and the order to stop
}

// give sends an order, after those that found no room before. If the guardian has
// ended, nothing is reported here: the pipe of its reports is closed then.
func (c *control) give(o order) {
	c.waiting = slices.DeleteFunc(c.waiting, func(old order) bool {
		return old == o || old.KillAt != 0 && o.KillAt != 0
	})
	c.waiting = append(c.waiting, o)
	c.flush()
}

// flush sends as many of the orders that wait as there is room for.
func (c *control) flush() {
	for len(c.waiting) > 0 && c.write(c.waiting[0]) {
		c.waiting = c.waiting[1:]
	}
}

// write tries to send an order, and reports whether it need not be tried again.
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
		return true // also if there was no room
	})
	return err != nil || failed != unix.EAGAIN
}

func (c *control) close() { c.pipe.Close() }
