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

func newTables(metrics Metrics) *tables {
	out := newOutbox()
	return &tables{
		leases:  session.NewLeases(),
		boxes:   newMailboxes(metrics.EventDropped),
		handles: newHandles(),
		queues:  newQueues(out),
		recalls: recalls{},
		delays:  newDelays(),
		copyset: newCopyset(),
		outbox:  out,
	}
}
