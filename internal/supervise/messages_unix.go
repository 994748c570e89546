//go:build unix

package supervise

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/chubbylock/chubby/internal/bootclock"
	"golang.org/x/sys/unix"
)

// order is chubbyctl's message to the guardian. The first one starts the command, unless its instants have
// passed.
type order struct {
	// The instants, in nanoseconds of now's clock, when the command is asked to end, and when all are killed.
	StopAt int64 `json:"term,omitempty"`
	KillAt int64 `json:"kill,omitempty"`

	Signal    int  `json:"signal,omitempty"`    // to pass on to the command
	Unstopped bool `json:"unstopped,omitempty"` // unless the command has been asked to end
	Stop      bool `json:"stop,omitempty"`      // ask the command to end now, and kill it after KillAfter
}

// report is the guardian's message to chubbyctl.
type report struct {
	Started   int     `json:"started,omitempty"`   // the command's process and process group
	Failed    string  `json:"failed,omitempty"`    // why it could not start
	Errno     int     `json:"errno,omitempty"`     // likewise
	Late      bool    `json:"late,omitempty"`      // likewise: its time was over
	Immune    int     `json:"immune,omitempty"`    // a process of another user, which it may not signal
	Suspended int     `json:"suspended,omitempty"` // the signal that has stopped it for now
	Stopping  int64   `json:"stopping,omitempty"`  // the command is asked to end, and killed after so many nanoseconds
	Left      int     `json:"left,omitempty"`      // with Stopping: the command has ended, and so many remaining processes are asked
	Ended     *Result `json:"ended,omitempty"`     // the command has ended
	Gone      bool    `json:"gone,omitempty"`      // as have all its processes; the last report
}

// clock is the orders' clock, on systems where chubbyctl and its guardian read the same one.
const clock = bootclock.Clock

// now reads clock, in nanoseconds.
func now() int64 { return int64(bootclock.Now()) }

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

// outbox is the pipe of the guardian's reports. Writes do not block, because a stopped chubbyctl does not read.
// Only the last report waits for room, when nothing else is left to do.
type outbox struct {
	fd   int
	kept [][]byte // pending lines, at most one of each kind of report
}

// put sends a report, after pending ones. It drops the report of a stop that finds no room: stops may repeat.
func (o *outbox) put(r report) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("report to chubbyctl: %w", err)
	}
	if r.Suspended == 0 || len(o.kept) == 0 {
		o.kept = append(o.kept, append(line, '\n'))
	}
	//mutant: if err := unix.SetNonblock(o.fd, false); err != nil {
	if err := unix.SetNonblock(o.fd, !r.Gone); err != nil {
		return fmt.Errorf("report to chubbyctl: %w", err)
	}
	for len(o.kept) > 0 {
		// A pipe takes a line of this length whole or not at all.
		switch _, err := unix.Write(o.fd, o.kept[0]); err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			if r.Suspended != 0 && len(o.kept) == 1 {
				o.kept = nil
			}
			return nil
		case nil, unix.EPIPE:
			// If chubbyctl has ended, the pipe of orders is closed too, and the guardian works without reports.
			o.kept = o.kept[1:]
		default:
			return fmt.Errorf("report to chubbyctl: %w", err)
		}
	}
	return nil
}

// announcer notifies the user in its own goroutine, because a write may block: on a stopped terminal (Ctrl-S)
// or in a pager. The goroutine has ended when close returns.
type announcer struct {
	notify  func(text string)
	waiting chan notice
	done    chan struct{}
}

type notice struct {
	text  string
	given chan struct{} // closed when notify has returned
}

const (
	maxNotices  = 16                     // maximum of pending notices; more are dropped
	noticeBound = 200 * time.Millisecond // how long to wait for a notice that is useful only before its cause
)

func newAnnouncer(notify func(text string)) *announcer {
	a := &announcer{notify: notify, waiting: make(chan notice, maxNotices), done: make(chan struct{})}
	go func() {
		defer close(a.done)
		for n := range a.waiting {
			a.notify(n.text)
			close(n.given)
		}
	}()
	return a
}

// add queues a notice. The channel closes when it is given, perhaps never.
func (a *announcer) add(text string) (given <-chan struct{}) {
	n := notice{text, make(chan struct{})}
	select {
	case a.waiting <- n:
	default:
	}
	return n.given
}

func (a *announcer) addAndWait(text string) {
	select {
	case <-a.add(text):
	case <-time.After(noticeBound):
	}
}

// close waits until all notices are given. add must not be called after it.
func (a *announcer) close() {
	close(a.waiting)
	<-a.done
}
