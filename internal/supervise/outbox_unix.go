//go:build unix

package supervise

import (
	"encoding/json"
	"fmt"

	"golang.org/x/sys/unix"
)

// outbox is the pipe by which the guardian reports. Writing to it does not block, because
// a chubbyctl that is stopped does not read, and the pipe fills up. Only the last report
// waits for room, when nothing is left to be done.
type outbox struct {
	fd   int
	kept [][]byte // lines that found no room, at most one of each kind of report
}

// put sends a report, after those that found no room before. A report of a stop that
// finds no room is dropped: a command may be stopped again and again.
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
			// If chubbyctl has ended, the pipe of orders is closed too, and the guardian
			// does its work without reports.
			o.kept = o.kept[1:]
		default:
			return fmt.Errorf("report to chubbyctl: %w", err)
		}
	}
	return nil
}
