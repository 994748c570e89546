//go:build unix

package supervise

import (
	"encoding/json"
	"fmt"

	"golang.org/x/sys/unix"
)

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
