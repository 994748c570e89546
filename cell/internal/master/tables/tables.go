package tables

import "github.com/chubbylock/chubby/session"

// Tables is what only the master knows, and forgets with its epoch. The tables are independent, except: queues
// fill the outbox.
type Tables struct {
	Leases  *session.Leases
	Boxes   *Mailboxes
	Handles *Handles
	Queues  *Queues
	Recalls Recalls
	Delays  *Delays
	Copyset *Copyset
	Outbox  *Outbox
}

// New makes the tables of an epoch. dropped is called for each event that is dropped; claims is the max of
// bytes that Queues.Leading returns.
func New(dropped func(), claims int) *Tables {
	out := newOutbox()
	return &Tables{
		Leases:  session.NewLeases(),
		Boxes:   newMailboxes(dropped),
		Handles: newHandles(),
		Queues:  newQueues(out, claims),
		Recalls: Recalls{},
		Delays:  newDelays(),
		Copyset: newCopyset(),
		Outbox:  out,
	}
}
