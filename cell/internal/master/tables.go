package master

import "github.com/chubbylock/chubby/session"

// tables is what only the master knows, and forgets with its epoch. epoch.mu guards it. The tables are
// independent, except: queues fill the outbox, mailboxes and handles have usages.
type tables struct {
	leases    *session.Leases
	boxes     *mailboxes
	handles   *handles
	queues    *queues
	recalls   recalls
	holdTimes *holdTimes
	delays    *delays
	copyset   *copyset
	outbox    *outbox
	usages    *usages
}

func newTables(metrics Metrics) *tables {
	out := newOutbox()
	return &tables{
		leases:    session.NewLeases(),
		boxes:     newMailboxes(metrics.EventDropped),
		handles:   newHandles(),
		queues:    newQueues(out),
		recalls:   recalls{},
		holdTimes: newHoldTimes(metrics.TurnEnded),
		delays:    newDelays(),
		copyset:   newCopyset(),
		outbox:    out,
		usages:    newUsages(),
	}
}
