package cell

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/fsm"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
)

// member is this replica as one of its cell: Raft as it runs here, the stores and the network below it, and the
// other replicas as this one knows them. Start fills it, each field before the goroutines that use it begin.
type member struct {
	cfg   Config
	clock session.Clock
	log   *slog.Logger // never waits until a line is written
	fatal func(error)  // Replica.fail
	audit *audit.Log   // nil if disabled

	stores    *disk.Stores
	space     *disk.Space
	fsm       *fsm.FSM
	raft      *raft.Raft
	running   atomic.Pointer[raft.Raft] // raft, for goroutines that start before it
	passport  *peer.Passport
	port      *peer.Port
	transport *peer.Transport
	prober    *peer.Prober
}

// mastership says whether this replica is the master, and where the master is otherwise.
type mastership struct {
	*member
	master  atomic.Pointer[master.Master] // nil unless this replica is the master
	outages *outages
}

// bootstrap begins the cell in an empty data directory, or continues an interrupted bootstrap; with Join or
// Spare it waits until the cell adds the replica.
func (r *member) bootstrap(ctx context.Context, conf *raft.Config) error {
	me := r.stores.Identity().Get()
	if me.InCell() {
		return nil
	}
	o := &peer.Outsider{
		Cell:     r.cfg.Cell,
		Members:  rosterOf(r.cfg.Members),
		Identity: r.stores.Identity(),
		Callers:  r.port.Callers,
		Ask:      r.port.AskBootstrap,
		Clock:    r.clock,
		Logger:   r.log,
	}
	if r.cfg.Join || r.cfg.Spare {
		self, _ := r.cfg.self()
		adding := fmt.Sprintf("chubbyctl cell add %s %s", me.ID, self.Raft)
		if r.cfg.Spare {
			adding += " --spare, if that was not done"
		}
		if err := o.Join(ctx, adding); err != nil {
			return fmt.Errorf("join cell %s with %s: %w", r.cfg.Cell, r.cfg.Data, err)
		}
		return nil
	}
	if err := o.Begin(ctx, func() error { return r.stores.Bootstrap(conf, r.transport) }); err != nil {
		return fmt.Errorf("bootstrap cell %s in %s: %w", r.cfg.Cell, r.cfg.Data, err)
	}
	return nil
}

// bootstrapReport answers replicas that bootstrap or join, and the master that adds this one.
func (r *member) bootstrapReport() peer.BootstrapReport {
	me := r.stores.Identity().Get()
	self, _ := r.cfg.self()
	return peer.BootstrapReport{
		ID:          me.ID,
		Incarnation: me.Incarnation,
		Members:     rosterOf(r.cfg.Members),
		Roster:      me.Roster,
		Begun:       me.Begun,
		Joins:       (r.cfg.Join || r.cfg.Spare) && !me.Begun || me.Joined,
		Client:      r.advertised(),
		HTTP:        self.HTTP,
		MaxLevel:    r.cfg.supports,
	}
}

// checkConfiguration compares the configured members with the cell's, which count. It rejects another address
// of this replica: the others would not find it.
func (r *member) checkConfiguration() error {
	var has []identity.Member
	for _, s := range r.stores.Configuration().Servers {
		has = append(has, identity.Member{ID: string(s.ID), Raft: string(s.Address)})
	}
	if me := r.stores.Identity().Get(); len(has) == 0 && me.Roster != nil {
		for _, m := range me.Roster.Members {
			if !m.Left {
				has = append(has, m)
			}
		}
	}
	if len(has) == 0 {
		return nil
	}
	self, _ := r.cfg.self()
	if i := slices.IndexFunc(has, func(m identity.Member) bool { return m.ID == self.ID }); i >= 0 && has[i].Raft != self.Raft {
		return identity.Refused("replica %s is configured with the raft address %s, and the cell %s, as %s has it, knows it at %s: set it back. "+
			"A replica keeps its address: one with a DNS name can move to another host with its data directory; else put a new one in its place (chubbyctl cell replace)",
			r.cfg.ID, self.Raft, r.cfg.Cell, r.cfg.Data, has[i].Raft)
	}
	slices.SortFunc(has, func(a, b identity.Member) int { return cmp.Compare(a.ID, b.ID) })
	if diff := identity.Difference(rosterOf(r.cfg.Members), has); diff != "" {
		r.log.Warn("the configured members are not those of the cell, which count; bring members up to date", "cell", r.cfg.Cell, "difference", diff)
	}
	return nil
}

// noteRoster records in the data directory which replicas joined and left. Raft's goroutine calls it, so the
// record is durable before later entries are applied.
func (r *member) noteRoster(now raftfsm.Roster) {
	err := r.stores.Identity().Update(func(was *identity.Roster) *identity.Roster { return merged(was, now) })
	if err != nil {
		r.fatal(fmt.Errorf("note the replicas of the cell in %s: %w", r.cfg.Data, err))
	}
	r.port.Expel()
}

// merged adds the replicated roster to a data directory's; nil if nothing is new. The replicated one may be
// older: a joining replica gets the current roster, then applies the log from its beginning.
func merged(was *identity.Roster, now raftfsm.Roster) *identity.Roster {
	next := &identity.Roster{CellID: was.CellID, Members: slices.Clone(was.Members)}
	changed := false
	for _, m := range now.Members {
		i := slices.IndexFunc(next.Members, func(o identity.Member) bool { return o.ID == m.ID })
		switch {
		case i >= 0 && m.Phase == raftfsm.Left && !next.Members[i].Left:
			next.Members[i].Left, changed = true, true
		//mutant: case i < 0 && (m.Incarnation != "" || m.Phase == raftfsm.Left): //by TestSpareThatCannot of ./cell
		case i < 0 && m.Phase != raftfsm.Standby && (m.Incarnation != "" || m.Phase == raftfsm.Left): // a spare is added when it joins
			next.Members = append(next.Members, identity.Member{ID: m.ID, Raft: m.Raft, Incarnation: m.Incarnation, Left: m.Phase == raftfsm.Left})
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return next
}

// rosterOf returns the configured members, sorted by ID.
func rosterOf(members []Member) []identity.Member {
	list := make([]identity.Member, 0, len(members))
	for _, m := range members {
		list = append(list, identity.Member{ID: m.ID, Raft: m.Raft})
	}
	slices.SortFunc(list, func(a, b identity.Member) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// servers returns the replicas of Raft's newest configuration, perhaps uncommitted; before Raft runs, those of
// the log as opened.
func (r *member) servers() []raft.Server {
	running := r.running.Load()
	if running == nil {
		return r.stores.Configuration().Servers
	}
	return running.GetConfiguration().Configuration().Servers // it never has an error
}

// others returns the replicas of Raft's newest configuration without this one.
func (r *member) others() []raft.Server {
	// A clone: the list is Raft's own.
	return slices.DeleteFunc(slices.Clone(r.servers()), func(s raft.Server) bool { return string(s.ID) == r.cfg.ID })
}

// ask returns the reports of replicas that arrive in time, by their IDs.
func (r *member) ask(ctx context.Context, replicas []raft.Server, limit time.Duration) map[string]peer.Report {
	type answer struct {
		id     string
		report peer.Report
	}
	answers := make(chan answer, len(replicas)) // one of each
	for _, s := range replicas {
		r.prober.Ask(string(s.ID), string(s.Address), func(report peer.Report) { answers <- answer{string(s.ID), report} })
	}
	reports := map[string]peer.Report{}
	late := time.NewTimer(limit)
	defer late.Stop()
	for range replicas {
		select {
		case one := <-answers:
			reports[one.id] = one.report
		case <-late.C:
			return reports
		case <-ctx.Done():
			return reports
		}
	}
	return reports
}

func (r *member) isConfigured(id string) bool {
	return slices.ContainsFunc(r.servers(), func(s raft.Server) bool { return string(s.ID) == id })
}

func (r *member) memberAt(address string) (id string, ok bool) {
	for _, s := range r.servers() {
		if string(s.Address) == address {
			return string(s.ID), true
		}
	}
	if roster := r.stores.Identity().Get().Roster; roster != nil { // it may be far behind
		for _, m := range roster.Members {
			if m.Raft == address && !m.Left {
				return m.ID, true
			}
		}
		return "", false
	}
	for _, m := range r.cfg.Members {
		if m.Raft == address {
			return m.ID, true
		}
	}
	return "", false
}

// mayBeNewcomer reports whether the cell may have added a replica that the data directory does not know. Raft's
// newest configuration may have it, from an entry not applied yet. Or this replica follows no leader or an
// unknown one, after a long absence: without newcomers it hears nothing, and the cell may lack a majority. With
// a known leader, the log brings newcomers.
func (r *member) mayBeNewcomer(id string) bool {
	running := r.running.Load()
	if running == nil || r.isConfigured(id) {
		return true
	}
	_, leader := running.LeaderWithID()
	return r.stores.Identity().Get().KnownIncarnation(string(leader)) == ""
}

func (r *member) voters() (ids []string) {
	for _, s := range r.servers() {
		if s.Suffrage == raft.Voter {
			ids = append(ids, string(s.ID))
		}
	}
	return ids
}

// advertised returns the client address that this replica reports to others and to clients.
func (r *member) advertised() string {
	self, _ := r.cfg.self()
	return cmp.Or(r.cfg.Advertise, self.Client)
}

// clientAddress returns where clients reach a replica, as it reported or as configured.
func (r *member) clientAddress(id string) string {
	if id == r.cfg.ID {
		return r.advertised()
	}
	if address := r.port.ClientAddress(id); address != "" {
		return address
	}
	for _, m := range r.cfg.Members {
		if m.ID == id {
			return m.Client
		}
	}
	if m, ok := r.fsm.State().Roster.Find(id); ok {
		return m.Client
	}
	return ""
}

// role returns the replica's role, in the words of cell status.
func (r *mastership) role() string {
	switch {
	case r.master.Load() != nil:
		return "master"
	case r.raft.State() == raft.Follower:
		return "replica"
	}
	return "candidate"
}

// leads reports whether this replica led Raft during the call, and in which term.
func (r *mastership) leads() (term uint64, leads bool) {
	term = r.raft.CurrentTerm()
	return term, r.raft.State() == raft.Leader && r.raft.CurrentTerm() == term
}

// notMaster returns the error of a replica that is not the master, with the believed master.
func (r *mastership) notMaster() error {
	address, id := r.raft.LeaderWithID()
	if id == "" || string(id) == r.cfg.ID {
		if o := r.outages.now.Load(); o != nil {
			return r.outages.refusal(o)
		}
		return api.Errorf(api.Unavailable, "replica %s knows of no master that serves; an election takes about a second: try again", r.cfg.ID)
	}
	master := r.clientAddress(string(id))
	return &api.Error{
		Code: api.NotMaster, Master: master,
		Message: fmt.Sprintf("replica %s is not the master; it believes %s is, at %s (raft %s)", r.cfg.ID, id, master, address),
	}
}

// masterAddress returns where clients reach the believed master; "" if none is known.
func (r *mastership) masterAddress() string {
	_, id := r.raft.LeaderWithID()
	return r.clientAddress(string(id))
}
