//go:build unix

package supervise

import (
	"encoding/json"
	"fmt"

	"golang.org/x/sys/unix"
)

// outbox is the pipe by which the guardian reports. A chubbyctl that is stopped
// reads nothing, and the pipe fills up; so nothing waits for room in it but the
// last report, when nothing is left to be done.
type outbox struct {
	fd   int
	kept [][]byte // lines that found no room; at most one of each kind
}

// put sends a report, after those that found no room before. Of a command that
// is stopped again and again, only what there is room for is told.
func (o *outbox) put(r report) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("report to chubbyctl: %w", err)
	}
	if r.Suspended == 0 || len(o.kept) == 0 {
		o.kept = append(o.kept, append(line, '\n'))
	}
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
			// If nobody listens any more, the closed pipe of orders says so as well, and
			// what remains to be done is done for nobody's ears.
			o.kept = o.kept[1:]
		default:
			return fmt.Errorf("report to chubbyctl: %w", err)
		}
	}
	return nil
}
