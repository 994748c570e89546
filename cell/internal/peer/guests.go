package peer

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/chubbylock/chubby/api"
)

// Guest is a user of a replica's console, for which this replica calls the master. The master believes the
// replica's word, as it believes its log: both rest on the replica's certificate.
type Guest struct {
	Principal string `json:"principal"` // empty if nobody is asked who he is
	Address   string `json:"address"`   // where he is, host:port
}

const (
	maxGuests     = 64      // open connections for guests of all replicas, at the called replica
	maxIntroduced = 2 << 10 // bytes of a Guest in JSON
)

// guestTaken is the called replica's answer when it accepts a guest; any other is a refusal.
const guestTaken byte = 1

// serveGuest accepts a guest of another replica: 4 bytes of length, big-endian, and a Guest in JSON. The answer
// is one byte.
func (p *Port) serveGuest(c *portConn) {
	who, err := readGuest(c)
	if err == nil && !p.takeGuest(c) {
		err = api.Errorf(api.QuotaExceeded, "%d connections for guests are open, the most this port takes", maxGuests)
	}
	verdict := []byte{guestTaken}
	if err != nil {
		verdict[0] = 0
	}
	late := time.AfterFunc(helloTimeout, c.abort)
	_, werr := c.Write(verdict)
	late.Stop()
	if err == nil {
		err = werr
	}
	if err != nil {
		p.refuseConnection(c, err)
		return
	}
	p.Guest(c, who)
}

func readGuest(c *portConn) (who Guest, err error) {
	late := time.AfterFunc(helloTimeout, c.abort)
	defer late.Stop()
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return who, fmt.Errorf("read who a guest is: %w", err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxIntroduced {
		return who, api.Errorf(api.InvalidArgument, "who a guest is takes %d bytes, more than %d", n, maxIntroduced)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(c, text); err != nil {
		return who, fmt.Errorf("read who a guest is: %w", err)
	}
	if err := json.Unmarshal(text, &who); err != nil {
		return who, api.Errorf(api.InvalidArgument, "who a guest is cannot be read: %v", err)
	}
	return who, nil
}

func (p *Port) takeGuest(c *portConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.guests >= maxGuests {
		return false
	}
	if _, open := p.conns[c]; !open {
		return false
	}
	p.guests++
	c.guest = true
	return true
}

// Visit opens a connection to a replica for a guest, within timeout.
func (p *Port) Visit(id, address string, who Guest, timeout time.Duration) (net.Conn, error) {
	text, err := json.Marshal(who)
	if err != nil {
		return nil, fmt.Errorf("say who a guest is: %w", err)
	}
	conn, err := p.dial(guestStream, id, address, timeout)
	if err != nil {
		return nil, err
	}
	late := time.AfterFunc(timeout, func() { _ = conn.Close() })
	verdict := [1]byte{}
	if _, err = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)); err == nil {
		_, err = io.ReadFull(conn, verdict[:])
	}
	if !late.Stop() && err == nil {
		err = api.Errorf(api.DeadlineExceeded, "no answer within %v", timeout)
	}
	if err == nil && verdict[0] != guestTaken {
		err = api.Errorf(api.Unavailable, "it takes no guest now: its log says why")
	}
	if err != nil {
		_ = conn.Close() // err is the error to report
		return nil, fmt.Errorf("speak for somebody at replica %s: %w", id, err)
	}
	return conn, nil
}
