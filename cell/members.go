package cell

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/hashicorp/raft"
)

// bootstrap begins the cell in a data directory that holds nothing, or continues a
// bootstrap that was interrupted.
func (r *Replica) bootstrap(ctx context.Context, conf *raft.Config) error {
	if r.stores.Identity().Get().Begun {
		return nil
	}
	b := &peer.Bootstrapper{
		Cell:     r.cfg.Cell,
		Members:  rosterOf(r.cfg.Members),
		Identity: r.stores.Identity(),
		Ask:      r.port.AskBootstrap,
		Clock:    r.clock,
		Logger:   r.log,
		Begin:    func() error { return r.stores.Bootstrap(conf, r.transport) },
	}
	if err := b.Complete(ctx); err != nil {
		return fmt.Errorf("bootstrap cell %s in %s: %w", r.cfg.Cell, r.cfg.Data, err)
	}
	return nil
}

// bootstrapReport is what this replica answers to a replica that bootstraps.
func (r *Replica) bootstrapReport() peer.BootstrapReport {
	me := r.stores.Identity().Get()
	return peer.BootstrapReport{
		ID:          me.ID,
		Incarnation: me.Incarnation,
		Members:     rosterOf(r.cfg.Members),
		Roster:      me.Roster,
		Begun:       me.Begun,
	}
}

// checkConfiguration refuses to start a replica that is configured with other members
// than its cell has: some of the others would take it for another replica.
func (r *Replica) checkConfiguration() error {
	var has []identity.Member
	for _, s := range r.stores.Configuration().Servers {
		has = append(has, identity.Member{ID: string(s.ID), Raft: string(s.Address)})
	}
	if me := r.stores.Identity().Get(); len(has) == 0 && me.Roster != nil {
		has = me.Roster.Members
	}
	if diff := identity.Difference(rosterOf(r.cfg.Members), has); len(has) > 0 && diff != "" {
		return identity.Refused("the members that replica %s is configured with are not those of the cell %s, as %s has them: %s. "+
			"This version cannot change the members of a cell: set members back. A member with a DNS name as its raft address can move to another host with its data directory",
			r.cfg.ID, r.cfg.Cell, r.cfg.Data, diff)
	}
	return nil
}

// memberAt returns the ID of the replica that has a Raft address.
func (r *Replica) memberAt(address string) (id string, ok bool) {
	for _, m := range r.cfg.Members {
		if m.Raft == address {
			return m.ID, true
		}
	}
	return "", false
}

// rosterOf is a configured list of members, in the order of their IDs.
func rosterOf(members []Member) []identity.Member {
	list := make([]identity.Member, 0, len(members))
	for _, m := range members {
		list = append(list, identity.Member{ID: m.ID, Raft: m.Raft})
	}
	slices.SortFunc(list, func(a, b identity.Member) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
