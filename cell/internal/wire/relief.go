package wire

import (
	"github.com/chubbylock/chubby/api"
)

// overflow is the multiple of a memory limit at which connections are closed.
const overflow = 2

// heldLimits are the limits of memory held for clients' calls, in bytes: of one connection, one address, and
// all. Above a limit, complete calls and long replies are refused with a reason. At twice the limit, the
// heaviest connection is closed: only incomplete requests and unanswerable frames reach that.
//
// 1 GiB is 130,000 parked calls, or 4,000 whole files under way. A client has a parked KeepAlive for each
// session, and a call for each lock that it waits for.
type heldLimits struct{ conn, address, all int64 }

// limitsOf gives an address a quarter of the total, and a connection a quarter of that.
func limitsOf(all int64) heldLimits { return heldLimits{conn: all / 16, address: all / 4, all: all} }

// full returns an error if an origin's calls hold too much, or more than their share while all hold too much.
func (c *Connections) full(o *party) error {
	held, all := o.bytes.Load(), c.bytes.Load()
	switch {
	case held > c.limits.address:
		return api.Errorf(api.Unavailable, "the calls from %s hold %d bytes of the replica's memory, and at most %d are allowed for one address; wait for some answers, then try again", o.name, held, c.limits.address)
	case all > c.limits.all && held > c.limits.all/max(1, c.origins.Load()):
		return api.Errorf(api.Unavailable, "the calls of clients hold %d bytes of the replica's memory, at most %d are allowed, and those from %s have more than their share; try again", all, c.limits.all, o.name)
	}
	return nil
}

// lasting returns how many bytes closing connections could free.
func (p *party) lasting() int64 { return p.bytes.Load() - p.ending.Load() }

// relieve closes connections if too much is held: the grown one if it holds too much itself, or the heaviest
// one of the address that holds most. It ignores what closed connections still hold; else it would close one
// after the other until calls being served end.
func (c *Connections) relieve(grown *account, bytes int64) {
	over := func() (*party, bool) {
		if grown.origin.lasting() > overflow*c.limits.address {
			return grown.origin, true
		}
		return nil, c.bytes.Load()-c.ending.Load() > overflow*c.limits.all
	}
	_, yes := over()
	if bytes <= overflow*c.limits.conn && !yes {
		return
	}
	var victims []*account
	c.mu.Lock()
	if bytes > overflow*c.limits.conn {
		victims = append(victims, grown)
		c.drop(grown)
	}
	for {
		from, yes := over()
		if !yes {
			break
		}
		if from == nil {
			for _, o := range c.from.here {
				if from == nil || o.lasting() > from.lasting() {
					from = o
				}
			}
		}
		heaviest := from.heaviest()
		if heaviest == nil {
			break // refused connections hold it
		}
		victims = append(victims, heaviest)
		c.drop(heaviest)
	}
	c.mu.Unlock()
	for _, a := range victims {
		c.told.Shed()
		if n, ok := c.saidShed.Next(); ok {
			from, _ := a.conn.from()
			c.log.Warn("closed a client's connection: its calls held too much memory", "event", "connection_closed", "from", from, "count", n)
		}
		_ = a.conn.Close() // its server notices
	}
}

// drop ends the calls of a connection before it is closed. c.mu is held.
func (c *Connections) drop(a *account) {
	delete(a.origin.accounts, a)
	a.close()
}

// heaviest returns the account that holds most, or nil. Connections.mu is held.
func (p *party) heaviest() *account {
	var heaviest *account
	most := int64(0)
	if p == nil {
		return nil
	}
	for a := range p.accounts {
		if n := a.held(); n > most {
			heaviest, most = a, n
		}
	}
	return heaviest
}
