package wire

import (
	"sync/atomic"

	"github.com/chubbylock/chubby/api"
)

// overflow is the multiple of a limit of what is held at which connections are closed.
const overflow = 2

// heldLimits are the limits of what a replica holds in memory for the calls of clients, in
// bytes: of one connection, of all connections from one address, and of all. A limit is where
// complete calls, and long replies, are refused with a reason. At twice the limit the
// connection that holds most is closed: only calls whose requests have not arrived yet,
// and frames that cannot be answered, get there.
//
// 1 GiB are 130,000 calls that are parked, or 4,000 whole files on their way. A client
// has one KeepAlive parked for each session, and one call for each lock it waits for.
type heldLimits struct{ conn, address, all int64 }

// limitsOf divides what may be held in all: an address may hold a quarter of it, and a connection a quarter of
// that.
func limitsOf(all int64) heldLimits { return heldLimits{conn: all / 16, address: all / 4, all: all} }

// source is where connections come from; see origin.Of.
type source struct {
	name     string
	bytes    atomic.Int64
	ending   atomic.Int64          // of those, what closed connections hold yet
	open     int                   // connections; Connections.mu guards it
	silent   int                   // of these, those that have sent nothing yet; Connections.mu guards it
	accounts map[*account]struct{} // of these, and of refused ones that are kept; Connections.mu guards it

	calls, returns, handshakes, waste bucket
}

// full returns why no call from somewhere is served: those from there hold too much, or
// all hold too much and those from there more than their share.
func (c *Connections) full(o *source) error {
	held, all := o.bytes.Load(), c.bytes.Load()
	switch {
	case held > c.limits.address:
		return api.Errorf(api.Unavailable, "the calls from %s hold %d bytes of the replica's memory, and at most %d are allowed for one address; wait for some answers, then try again", o.name, held, c.limits.address)
	case all > c.limits.all && held > c.limits.all/max(1, c.origins.Load()):
		return api.Errorf(api.Unavailable, "the calls of clients hold %d bytes of the replica's memory, at most %d are allowed, and those from %s have more than their share; try again", all, c.limits.all, o.name)
	}
	return nil
}

// lasting returns what is held that closing connections could give back.
func (o *source) lasting() int64 { return o.bytes.Load() - o.ending.Load() }

// relieve closes connections if too much is held: the one whose account has grown, if
// that holds too much itself, or the one that holds most of the address that holds most.
// What connections hold that were closed before does not count: others would be closed
// one after the other, until calls that are being served have ended.
func (c *Connections) relieve(grown *account, bytes int64) {
	over := func() (*source, bool) {
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
			for _, o := range c.from {
				if from == nil || o.lasting() > from.lasting() {
					from = o
				}
			}
		}
		heaviest := from.heaviest()
		if heaviest == nil {
			break // connections that are refused hold it
		}
		victims = append(victims, heaviest)
		c.drop(heaviest)
	}
	c.mu.Unlock()
	for _, a := range victims {
		c.told.Shed()
		if n, ok := c.saidShed.Next(); ok {
			c.log.Warn("closed a client's connection: its calls held too much memory", "event", "connection_closed", "from", a.conn.Conn.RemoteAddr(), "count", n)
		}
		_ = a.conn.Close() // its server notices
	}
}

// drop ends the calls of a connection that is to be closed. c.mu is held.
func (c *Connections) drop(a *account) {
	delete(a.origin.accounts, a)
	a.close()
}

// heaviest returns the account that holds most. Connections.mu is held.
func (o *source) heaviest() *account {
	var heaviest *account
	most := int64(0)
	if o == nil {
		return nil
	}
	for a := range o.accounts {
		if n := a.held(); n > most {
			heaviest, most = a, n
		}
	}
	return heaviest
}
