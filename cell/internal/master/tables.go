package master

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// tables is what only the master knows, and forgets with its epoch. epoch.mu guards it. The tables are
// independent, except: queues fill the outbox, holdTimes and mailboxes use usages.
type tables struct {
	leases    *session.Leases
	boxes     *mailboxes
	handles   *handles
	queues    *queues
	recalls   *recalls
	holdTimes *holdTimes
	delays    *delays
	copyset   *copyset
	outbox    *outbox
	usages    *usages
}

func newTables(metrics Metrics) *tables {
	out, usages := newOutbox(), newUsages()
	return &tables{
		leases:    session.NewLeases(),
		boxes:     &mailboxes{mail: newMail(metrics.EventDropped), byID: map[api.SessionID]*mailbox{}},
		handles:   newHandles(),
		queues:    newQueues(out),
		recalls:   newRecalls(),
		holdTimes: newHoldTimes(metrics.TurnEnded, &usages.unread),
		delays:    newDelays(),
		copyset:   newCopyset(),
		outbox:    out,
		usages:    usages,
	}
}

func (b *mailboxes) add(id api.SessionID, principal string, c *usage) {
	b.byID[id] = newMailbox(b.mail, principal)
	b.byID[id].usage = c
}
