package master

import "github.com/chubbylock/chubby/session"

// tables is what only the master knows, and forgets with its epoch. epoch.mu guards it. The tables are
// independent, except: queues fill the outbox.
type tables struct {
	leases  *session.Leases
	boxes   *mailboxes
	handles *handles
	queues  *queues
	recalls recalls
	delays  *delays
	copyset *copyset
	outbox  *outbox
}

// newTables makes the tables of an epoch. dropped is called for each event that is dropped; claims is the max of
// bytes that queues.leading returns.
func newTables(dropped func(), claims int) *tables {
	out := newOutbox()
	return &tables{
		leases:  session.NewLeases(),
		boxes:   newMailboxes(dropped),
		handles: newHandles(),
		queues:  newQueues(out, claims),
		recalls: recalls{},
		delays:  newDelays(),
		copyset: newCopyset(),
		outbox:  out,
	}
}
