package peer

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
)

// maxReport limits the bytes of a BootstrapReport. The longest roster, of 1,000 replicas with the longest IDs
// and addresses, takes about half: TestLongestReport.
const maxReport = 1 << 20

// serveBootstrap answers a replica that bootstraps: 4 bytes of length, big-endian, and a BootstrapReport in JSON.
func (p *Port) serveBootstrap(c *portConn) {
	defer func() { _ = c.Close() }() // nothing is buffered that a failing close could lose
	text, err := json.Marshal(p.Bootstrap())
	if err != nil {
		p.Logger.Error("cannot report to a replica that bootstraps", "error", err)
		return
	}
	late := time.AfterFunc(helloTimeout, c.abort)
	defer late.Stop()
	_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)) // the caller asks again
}

// AskBootstrap asks a replica what it holds.
func (p *Port) AskBootstrap(m identity.Member) (BootstrapReport, error) {
	var r BootstrapReport
	conn, err := p.dial(bootstrapStream, m.ID, m.Raft, maxBootstrapAnswer)
	if err != nil {
		return r, err
	}
	defer func() { _ = conn.Close() }() // everything was read, or err says why not
	late := time.AfterFunc(maxBootstrapAnswer, func() { _ = conn.Close() })
	defer late.Stop()
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return r, fmt.Errorf("ask replica %s what it holds: %w", m.ID, err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxReport {
		return r, api.Errorf(api.Corrupt, "replica %s reports %d bytes, more than %d", m.ID, n, maxReport)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(conn, text); err != nil {
		return r, fmt.Errorf("ask replica %s what it holds: %w", m.ID, err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, api.Errorf(api.Corrupt, "replica %s reports what cannot be read: %v", m.ID, err)
	}
	if r.ID != m.ID {
		return r, api.Errorf(api.Unavailable, "replica %.64q reports, not %q", r.ID, m.ID)
	}
	return r, nil
}

// maxCallers is how many callers a replica without a cell remembers.
const maxCallers = 16

// noteCaller remembers a caller that is in a cell, while this replica is in none. This replica may ask it for
// admission: all configured members may have left.
func (p *Port) noteCaller(h hello, verdict helloVerdict) {
	if verdict != helloAccepted && verdict != helloNoCell || h.cellID == "" || h.raft == "" || p.Passport.me().InCell() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.callers {
		if len(p.callers) < maxCallers {
			break
		}
		delete(p.callers, id) // any one: those that matter call again
	}
	p.callers[h.from] = h.raft
}

// Callers returns the callers in a cell, while this replica is in none.
func (p *Port) Callers() (list []identity.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, address := range p.callers {
		list = append(list, identity.Member{ID: id, Raft: address})
	}
	return list
}
